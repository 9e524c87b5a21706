//go:build !race

package npm_test

const raceEnabled = false
