package house

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parse reads the text of a value and checks it against the setting's words, bounds and check.
func (s *Setting) parse(text string) (any, error) {
	value, err := s.read(text)
	if err != nil {
		return nil, err
	}
	var n int64
	switch v := value.(type) {
	case int64:
		n = v
	case time.Duration:
		n = int64(v)
	case []string:
		return value, nil // each item is checked
	default:
		return value, s.check(text)
	}
	word := (s.Type == Size || s.Type == Duration) && slices.Contains(s.Words, text)
	if (s.Min != 0 || s.Max != 0) && !word && (n < s.Min || n > s.Max) {
		return nil, fmt.Errorf("must be between %s and %s", s.format(s.Min), s.format(s.Max))
	}
	return value, s.check(text)
}

func (s *Setting) check(text string) error {
	if s.Check == nil {
		return nil
	}
	return s.Check(text)
}

// read turns the text into the Go value of the setting's type.
func (s *Setting) read(text string) (any, error) {
	switch s.Type {
	case Bool:
		switch text {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, errors.New("must be true or false")
	case Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, errors.New("must be a whole number")
		}
		return n, nil
	case Size:
		if slices.Contains(s.Words, text) {
			return int64(0), nil
		}
		return ParseSize(text)
	case Duration:
		if slices.Contains(s.Words, text) {
			return time.Duration(0), nil
		}
		return ParseDuration(text)
	case List:
		return s.list(text)
	}
	if len(s.Words) > 0 && !slices.Contains(s.Words, text) {
		return nil, s.notAWord(text)
	}
	return text, nil
}

// list splits at commas; blanks around an item are dropped, and so are empty items. Each item has to pass the
// setting's check.
func (s *Setting) list(text string) ([]string, error) {
	items := []string{}
	for _, item := range splitItems(text) {
		item = strings.TrimSpace(item)
		if item == "" || slices.Contains(items, item) {
			continue
		}
		if err := s.check(item); err != nil {
			return nil, err
		}
		if len(s.Words) > 0 && !slices.Contains(s.Words, item) {
			return nil, s.notAWord(item)
		}
		items = append(items, item)
	}
	return items, nil
}

// splitItems splits at the commas that stand in no JSON object: an item may be one.
func splitItems(text string) (items []string) {
	deep, quoted, begin := 0, false, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case deep > 0 && quoted && c == '\\':
			i++
		case deep > 0 && c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			deep++
		case c == '}' && deep > 0:
			deep--
		case c == ',' && deep == 0:
			items = append(items, text[begin:i])
			begin = i + 1
		}
	}
	return append(items, text[begin:])
}

func (s *Setting) notAWord(text string) error {
	if near := didYouMean(Nearest(text, s.Words)); near != "" {
		return fmt.Errorf("must be one of %s; %s", strings.Join(s.Words, ", "), near)
	}
	return fmt.Errorf("must be one of %s", strings.Join(s.Words, ", "))
}

// format writes a bound in the way a person writes the setting.
func (s *Setting) format(n int64) string {
	switch s.Type {
	case Size:
		return FormatSize(n)
	case Duration:
		return FormatDuration(time.Duration(n))
	}
	return strconv.FormatInt(n, 10)
}

var sizeUnits = [...]struct {
	name string
	of   int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseSize reads a number of bytes: "4096", "64KiB", "1.5GiB", "200MB". KiB, MiB, GiB and TiB are
// powers of 1024, kB, MB, GB and TB powers of 1000. A bare K, M or G is refused: half the world reads it
// one way and half the other.
func ParseSize(text string) (int64, error) {
	number, of := text, int64(1)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			number, of = strings.TrimSpace(n), u.of
			break
		}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil && n >= 0 {
		if n > math.MaxInt64/of {
			return 0, errors.New("is too large")
		}
		return n * of, nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f < 0 || strings.ContainsAny(number, "eExXpP_iInN+") {
		if digits := strings.TrimRight(text, "KMGTkmgt"); digits != text && digits != "" {
			unit := strings.ToUpper(text[len(digits):][:1])
			if _, err := strconv.ParseFloat(digits, 64); err == nil {
				return 0, fmt.Errorf("must name its unit: %s%siB (1024) or %s%sB (1000)", digits, unit, digits, unit)
			}
		}
		return 0, errors.New(`must be a size such as "256MiB", "1.5GiB" or a number of bytes`)
	}
	if f*float64(of) >= math.MaxInt64 {
		return 0, errors.New("is too large")
	}
	return int64(f * float64(of)), nil
}

// FormatSize writes n bytes with the largest power of 1024 that leaves at most one decimal place exact,
// and in bytes otherwise, so that ParseSize reads it back unchanged.
func FormatSize(n int64) string {
	for i := 3; i >= 0; i-- {
		if u := sizeUnits[i]; n >= u.of && (n%u.of == 0 || (n*2)%u.of == 0 && n < math.MaxInt64/2) {
			return strconv.FormatFloat(float64(n)/float64(u.of), 'f', -1, 64) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// RoundSize writes n bytes for a person, rounded to one decimal place: "1.4 GiB".
func RoundSize(n int64) string {
	for i := 3; i >= 0; i-- {
		if u := sizeUnits[i]; n >= u.of {
			text := strconv.FormatFloat(float64(n)/float64(u.of), 'f', 1, 64)
			return strings.TrimSuffix(text, ".0") + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

// ParseDuration reads what time.ParseDuration reads ("5s", "1m30s", "250ms"), and whole days ("7d").
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err == nil && n >= 0 && n <= math.MaxInt64/int64(24*time.Hour) {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		if _, bare := strconv.ParseFloat(text, 64); bare == nil && !strings.HasPrefix(text, "-") {
			return 0, fmt.Errorf("must name its unit: %ss, %sms, %sm or %sh", text, text, text, text)
		}
		return 0, errors.New(`must be a duration such as "5s", "250ms", "1m30s" or "7d"`)
	}
	return d, nil
}

// FormatDuration writes d the short way ("15m", not "15m0s").
func FormatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
