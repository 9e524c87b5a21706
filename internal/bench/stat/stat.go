// Package stat reduces the values of repeated measurements to the few numbers that a report shows.
//
// It promises exact arithmetic on what it is given: no outlier is removed, nothing is smoothed, and
// the slices passed in are never reordered. Any goroutine may call any function at any time. It does
// not measure anything itself and knows no units.
package stat

import (
	"math"
	"slices"
)

// Median returns the middle value, or the mean of the two middle ones; 0 when there are none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return sorted[mid-1]/2 + sorted[mid]/2
}

// Spread returns the full range over the median: 0.1 means that the rounds lie within a tenth of the
// median. It is 0 for fewer than two values and for a median of 0.
func Spread(values []float64) float64 {
	middle := Median(values)
	if len(values) < 2 || middle == 0 {
		return 0
	}
	return (slices.Max(values) - slices.Min(values)) / math.Abs(middle)
}

// Slope returns the least-squares gradient of y over x, and the y at x = 0. Fewer than two different
// x have no gradient: the slope is 0 and the intercept the mean of y. Slices of unequal length are
// compared as far as the shorter one goes.
func Slope(x, y []float64) (slope, intercept float64) {
	n := min(len(x), len(y))
	if n == 0 {
		return 0, 0
	}
	var sumX, sumY float64
	for i := range n {
		sumX += x[i]
		sumY += y[i]
	}
	meanX, meanY := sumX/float64(n), sumY/float64(n)
	var num, den float64
	for i := range n {
		dx := x[i] - meanX
		num += dx * (y[i] - meanY)
		den += dx * dx
	}
	if den == 0 {
		return 0, meanY
	}
	return num / den, meanY - num/den*meanX
}

// Ratio pairs a[i] with b[i], which were measured in the same round, and returns the quotients. A pair
// whose divisor is 0 is left out: it says nothing.
func Ratio(a, b []float64) []float64 {
	quotients := make([]float64, 0, min(len(a), len(b)))
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			quotients = append(quotients, a[i]/b[i])
		}
	}
	return quotients
}
