//go:build !windows

package main

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"syscall"
	"testing"

	"github.com/plinth-run/plinth/internal/house"
)

func TestServerOutlivesTheReadersOfItsOutput(t *testing.T) {
	path, err := exec.LookPath("plinth")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "serve", "--json", "--data", t.TempDir(),
		"--engine-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var b house.Banner
	if err := json.NewDecoder(out).Decode(&b); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	stop, err := demo(b.Workers) // its joining is logged
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(log).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = log.Close()
	stop() // its leaving is logged too: into a pipe without a reader
	if stop, err = demo(b.Workers); err != nil {
		t.Fatalf("the server is gone: %v", err)
	}
	stop()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("left with %v", err)
	}
}
