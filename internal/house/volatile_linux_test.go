package house

import (
	"os"
	"strings"
	"testing"
)

func TestFolderInMemoryDoesNotPersist(t *testing.T) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	inMemory := strings.Contains(string(mounts), " /dev/shm tmpfs ")
	f := LookAtFolder("/dev/shm/plinth/not-there")
	if told := strings.Contains(f.Note, "in memory"); told != inMemory || told == f.Persists {
		t.Errorf("in memory: %v, got %+v", inMemory, f)
	}
}

func TestOwnerOfNoPortIsNobody(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "127.0.0.1", "127.0.0.1:x", ""} {
		if o := PortOwner(address); o != (Owner{}) {
			t.Errorf("%s: %+v", address, o)
		}
	}
}
