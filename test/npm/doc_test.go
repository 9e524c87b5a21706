// Package npm_test runs the public npm SDK, unchanged, and the examples of the README against a built
// plinth. Every script gets an engine of its own on free ports, and a proxy whose connections it can
// break. It needs Node 20 and the packages of package-lock.json; `make test` installs them and sets
// TEST_NPM=1, with which nothing is skipped. TEST_BIN names a built program to test instead of the
// one from this checkout.
package npm_test
