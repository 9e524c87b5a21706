package bench

import (
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/plinth-run/plinth/internal/bench/proc"
)

// Environment is where and with what a session ran.
type Environment struct {
	Date       time.Time `json:"date"`
	OS         string    `json:"os"`
	Kernel     string    `json:"kernel,omitempty"`
	CPU        string    `json:"cpu,omitempty"` // model
	CPUs       string    `json:"cpus"`          // this process may use
	Governor   string    `json:"governor,omitempty"`
	Memory     int64     `json:"memory,omitempty"`     // bytes of the machine
	Hypervisor bool      `json:"hypervisor,omitempty"` // a virtual machine
	Load       string    `json:"load,omitempty"`       // averages of 1, 5 and 15 minutes, before the session
	Go         string    `json:"go"`
	Version    string    `json:"version,omitempty"`
	Commit     string    `json:"commit,omitempty"`
}

// environment reads what the machine tells about itself; what it does not tell stays empty.
func environment(version, commit string) Environment {
	e := Environment{
		Date: time.Now().UTC(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Version: version, Commit: commit,
	}
	if cpus, err := proc.CPUs(); err == nil {
		e.CPUs = proc.FormatCPUs(cpus)
	}
	e.Kernel = read("/proc/sys/kernel/osrelease")
	e.Governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	if averages := strings.Fields(read("/proc/loadavg")); len(averages) >= 3 {
		e.Load = strings.Join(averages[:3], " ")
	}
	e.CPU, e.Hypervisor = parseCPUInfo(read("/proc/cpuinfo"))
	e.Memory = parseMemInfo(read("/proc/meminfo"))
	return e
}

func read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func parseCPUInfo(text string) (model string, hypervisor bool) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			if model == "" {
				model = strings.TrimSpace(value)
			}
		case "flags":
			hypervisor = hypervisor || strings.Contains(" "+strings.TrimSpace(value)+" ", " hypervisor ")
		}
	}
	return model, hypervisor
}

func parseMemInfo(text string) (bytes int64) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "MemTotal:")
		if !ok {
			continue
		}
		rest = strings.TrimSuffix(strings.TrimSpace(rest), "kB")
		for _, d := range strings.TrimSpace(rest) {
			if d < '0' || d > '9' {
				return 0
			}
			bytes = bytes*10 + int64(d-'0')
		}
		return bytes << 10
	}
	return 0
}
