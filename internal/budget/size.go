package budget

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// SizeError says why a text is no size.
type SizeError struct {
	Text   string
	Reason SizeReason
}

// SizeReason is what is wrong with a size.
type SizeReason uint8

const (
	SizeEmpty    SizeReason = iota // nothing there
	SizeNumber                     // it does not begin with a number that is not negative
	SizeUnit                       // the unit is unknown
	SizeTooLarge                   // over 8 EiB
)

// Error names the text and what would be right.
func (e *SizeError) Error() string {
	switch e.Reason {
	case SizeEmpty:
		return `a size is missing: give it as 256MiB, 2GiB or 1g`
	case SizeUnit:
		return fmt.Sprintf("%q: unknown unit; there are B, KiB, MiB, GiB, TiB, kB, MB, GB and TB", e.Text)
	case SizeTooLarge:
		return fmt.Sprintf("%q is larger than any memory", e.Text)
	}
	return fmt.Sprintf("%q: a size begins with a number, as 256MiB, 2GiB or 1g", e.Text)
}

// Is reports whether target is a SizeError of the same reason, whatever its text.
func (e *SizeError) Is(target error) bool {
	t, ok := target.(*SizeError)
	return ok && t.Reason == e.Reason
}

// ParseSize reads a number of bytes: "256MiB", "1.5GiB", "2GB", "1g", "65536". KiB and a bare k, m, g
// or t are powers of 1024, kB, MB, GB and TB are powers of 1000; case does not matter, and white space
// around the number neither. The error is a *SizeError.
func ParseSize(s string) (int64, error) {
	text := strings.TrimSpace(s)
	if text == "" {
		return 0, &SizeError{s, SizeEmpty}
	}
	end := 0
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || text[end] == '.') {
		end++
	}
	factor, ok := unit(strings.TrimSpace(text[end:]))
	digits := text[:end]
	whole, fraction, _ := strings.Cut(digits, ".")
	switch {
	case digits == "" || digits == "." || strings.Contains(fraction, "."):
		return 0, &SizeError{s, SizeNumber}
	case !ok:
		return 0, &SizeError{s, SizeUnit}
	}
	n, err := strconv.ParseInt("0"+whole, 10, 64)
	if err != nil || n > math.MaxInt64/factor {
		return 0, &SizeError{s, SizeTooLarge}
	}
	n *= factor
	part, err := strconv.ParseFloat("0."+fraction+"0", 64)
	if err != nil {
		return 0, &SizeError{s, SizeNumber}
	}
	more := int64(part * float64(factor))
	if n > math.MaxInt64-more {
		return 0, &SizeError{s, SizeTooLarge}
	}
	return n + more, nil
}

func unit(s string) (int64, bool) {
	switch strings.ToLower(s) {
	case "", "b":
		return 1, true
	case "k", "kib":
		return 1 << 10, true
	case "m", "mib":
		return 1 << 20, true
	case "g", "gib":
		return 1 << 30, true
	case "t", "tib":
		return 1 << 40, true
	case "kb":
		return 1e3, true
	case "mb":
		return 1e6, true
	case "gb":
		return 1e9, true
	case "tb":
		return 1e12, true
	}
	return 0, false
}

// FormatSize writes n in the largest of B, KiB, MiB, GiB and TiB that takes no rounding, so that
// ParseSize reads the same n.
func FormatSize(n int64) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for i < len(units)-1 && n != 0 && n%1024 == 0 {
		n /= 1024
		i++
	}
	return strconv.FormatInt(n, 10) + units[i]
}
