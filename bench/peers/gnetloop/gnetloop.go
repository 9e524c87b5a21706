// Package gnetloop measures the event loop of this project against gnet and against a goroutine for
// each connection, all as echo servers in a process of their own.
//
// Its test starts each server pinned to one processor, drives it from another one, and prints the
// server's processor time for a message and the messages of a second, as medians over interleaved
// rounds. Figures of one run are comparable with each other only. It runs on Linux.
package gnetloop
