package bench

import (
	"fmt"
	"strconv"
	"strings"
)

// Profile is the size of a machine to run the engine in. The zero Profile is the machine as it is.
type Profile struct {
	CPUs   int   `json:"cpus,omitempty"`
	Memory int64 `json:"memory,omitempty"` // bytes
}

// String writes a profile as ParseProfiles reads it; "" for the zero Profile.
func (p Profile) String() string {
	if p == (Profile{}) {
		return ""
	}
	return fmt.Sprintf("%dx%d", p.CPUs, p.Memory>>20)
}

// ParseProfiles reads "1x512,2x1024": processors and MiB.
func ParseProfiles(list string) ([]Profile, error) {
	var profiles []Profile
	for part := range strings.SplitSeq(list, ",") {
		cpus, mib, ok := strings.Cut(strings.TrimSpace(part), "x")
		n, errN := strconv.Atoi(cpus)
		m, errM := strconv.ParseInt(mib, 10, 32)
		if !ok || errN != nil || errM != nil || n < 1 || n > 1024 || m < 16 {
			return nil, fmt.Errorf("profile %q: want processors x MiB, at least 1x16, as in 1x512,2x1024", part)
		}
		profiles = append(profiles, Profile{CPUs: n, Memory: m << 20})
	}
	return profiles, nil
}
