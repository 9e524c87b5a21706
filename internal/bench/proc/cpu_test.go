package proc

import (
	"slices"
	"testing"
)

func TestProcessorListsReadAsTheKernelWritesThem(t *testing.T) {
	for _, c := range []struct {
		list string
		want []int
		back string
	}{
		{"", nil, ""},
		{"0\n", []int{0}, "0"},
		{"0-3", []int{0, 1, 2, 3}, "0-3"},
		{"5,0-1,1", []int{0, 1, 5}, "0-1,5"},
		{"7,6,2", []int{2, 6, 7}, "2,6-7"},
		{"1023", []int{1023}, "1023"},
	} {
		got, err := ParseCPUs(c.list)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("ParseCPUs(%q) = %v, %v; want %v", c.list, got, err, c.want)
		}
		if back := FormatCPUs(got); back != c.back {
			t.Errorf("FormatCPUs(%v) = %q, want %q", got, back, c.back)
		}
	}
}

func TestOddProcessorListsAreRefused(t *testing.T) {
	for _, list := range []string{"a", "1-", "-1", "3-2", "0-1024", "1-2-3", "0 1"} {
		if got, err := ParseCPUs(list); err == nil {
			t.Errorf("ParseCPUs(%q) = %v, want an error", list, got)
		}
	}
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-3,6")
	f.Fuzz(func(t *testing.T, list string) {
		cpus, err := ParseCPUs(list)
		if err != nil {
			return
		}
		again, err := ParseCPUs(FormatCPUs(cpus))
		if err != nil || !slices.Equal(again, cpus) {
			t.Fatalf("%q became %v and then %v, %v", list, cpus, again, err)
		}
	})
}

func TestSplitKeepsServerAndLoadApartWhereItCan(t *testing.T) {
	for _, c := range []struct {
		cpus         []int
		n            int
		server, load []int
		shared       bool
	}{
		{nil, 0, nil, nil, true},
		{[]int{3}, 0, []int{3}, []int{3}, true},
		{[]int{0, 1}, 0, []int{0}, []int{1}, false},
		{[]int{0, 1}, 1, []int{0}, []int{1}, false},
		{[]int{0, 1}, 2, []int{0, 1}, []int{1}, true},
		{[]int{0, 1}, 4, []int{0, 1}, []int{1}, true},
		{[]int{0, 4, 1, 5}, 0, []int{0, 4}, []int{1, 5}, false},
		{[]int{0, 1, 2, 3, 4}, 0, []int{0, 1}, []int{2, 3, 4}, false},
		{[]int{0, 1, 2, 3, 4}, 4, []int{0, 1, 2, 3}, []int{4}, false},
	} {
		server, load, shared := Split(c.cpus, c.n)
		if !slices.Equal(server, c.server) || !slices.Equal(load, c.load) || shared != c.shared {
			t.Errorf("Split(%v, %d) = %v, %v, %v; want %v, %v, %v",
				c.cpus, c.n, server, load, shared, c.server, c.load, c.shared)
		}
	}
}

func TestSplitSharesNoMemoryBetweenServerAndLoad(t *testing.T) {
	server, load, _ := Split([]int{0, 1, 2, 3}, 2)
	server = append(server, 99)
	if load[0] != 2 || server[2] != 99 {
		t.Fatalf("growing the server's list changed the load's: %v", load)
	}
}
