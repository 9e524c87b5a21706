package store

// What tests outside of the package may see.
const (
	SegmentHead = segmentHead
	FrameHead   = frameHead
)

// CheckLog reads a log without changing it.
func CheckLog(fs FS, dir string) (LogOpened, error) { return checkLog(fs, dir) }

// TwoProcessors is what Open calls.
func TwoProcessors() bool { return twoProcessors() }

// EncodeVersion returns a VERSION file as a program of that format would write it.
func EncodeVersion(format int, writer string, rooms map[string]int) []byte {
	v := version{Format: format, WrittenBy: writer, Rooms: map[string]roomVersion{}}
	for name, schema := range rooms {
		v.Rooms[name] = roomVersion{Schema: schema, WrittenBy: writer}
	}
	return v.encode()
}
