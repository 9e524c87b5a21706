package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// MaxFile bounds the content of WriteFile and ReadFile, in bytes. Snapshots of a log stream and have no
// bound.
const MaxFile = 64 << 20

// temporary is the ending of files that are being written. Whatever has it after a start is removed.
const temporary = ".tmp"

// castagnoli is the polynomial of every checksum on disk: CRC32C, which processors compute themselves.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// envelope is the line in front of a file's content, of fixed width, readable with head(1). The checksum at
// its end covers the content and then the line up to the checksum.
const (
	envelopeForm  = "plinth-file 1 version %010d bytes %020d crc32c "
	envelopeCRC   = len("plinth-file 1 version 0000000000 bytes 00000000000000000000 crc32c ")
	envelopeBytes = envelopeCRC + 8 + 1
)

func envelope(version uint32, size int64, bodyCRC uint32) []byte {
	b := fmt.Appendf(make([]byte, 0, envelopeBytes), envelopeForm, version, size)
	return fmt.Appendf(b, "%08x\n", crc32.Update(bodyCRC, castagnoli, b))
}

// parseEnvelope returns what the line says. Only the exact form that envelope writes is accepted.
func parseEnvelope(b []byte) (version uint32, size int64, sum uint32, ok bool) {
	if len(b) != envelopeBytes {
		return 0, 0, 0, false
	}
	n, err := fmt.Sscanf(string(b), envelopeForm+"%08x\n", &version, &size, &sum)
	if n != 3 || err != nil || size < 0 {
		return 0, 0, 0, false
	}
	same := fmt.Appendf(nil, envelopeForm+"%08x\n", version, size, sum)
	return version, size, sum, bytes.Equal(same, b)
}

// WriteFile replaces the file at path by content, durably and whole: after a crash the old file is there or
// the new one. At most MaxFile bytes. Two calls for the same path must not run at once. The errors are
// *SpaceError (the old file stays), *FailedError (a sync failed: the owner must stop), *SizeError, or the
// operation's own.
func WriteFile(fs FS, path string, version uint32, content []byte) error {
	if len(content) > MaxFile {
		err := &SizeError{Size: int64(len(content)), Max: MaxFile}
		return fmt.Errorf("store: write file %s: %w", path, err)
	}
	return writeStream(fs, path, version, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// writeStream is WriteFile for content of any size.
func writeStream(fs FS, path string, version uint32, write func(io.Writer) error) error {
	return replace(fs, path, func(f File) error {
		body := &tail{f: f, off: int64(envelopeBytes)}
		w := bufio.NewWriterSize(body, 16<<10)
		if err := write(w); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
		_, err := f.WriteAt(envelope(version, body.off-int64(envelopeBytes), body.crc), 0)
		return err
	})
}

// tail writes one after the other and keeps the checksum.
type tail struct {
	f   File
	off int64
	crc uint32
}

func (t *tail) Write(b []byte) (int, error) {
	n, err := t.f.WriteAt(b, t.off)
	t.off += int64(n)
	t.crc = crc32.Update(t.crc, castagnoli, b[:n])
	return n, err
}

// replace puts what fill writes in the place of path: temporary file, sync, rename, sync of the folder.
func replace(fs FS, path string, fill func(File) error) error {
	temp := path + temporary
	f, err := fs.Open(temp, os.O_CREATE|os.O_TRUNC|os.O_RDWR)
	if err != nil {
		return wrapWrite("create", path, err)
	}
	err = fill(f)
	if err == nil {
		if err = f.Sync(); err != nil {
			err = failed("sync", temp, err)
		}
	} else {
		err = wrapWrite("write", path, err)
	}
	if e := f.Close(); err == nil && e != nil {
		err = fmt.Errorf("store: close %s: %w", temp, e)
	}
	if err != nil {
		// Best effort, and to free space: the next open removes what stays.
		_ = fs.Remove(temp)
		return err
	}
	if err := fs.Rename(temp, path); err != nil {
		return wrapWrite("rename", path, err)
	}
	if err := fs.SyncDir(filepath.Dir(path)); err != nil {
		return failed("sync folder", filepath.Dir(path), err)
	}
	return nil
}

func wrapWrite(op, path string, err error) error {
	if full(err) {
		return &SpaceError{Path: path, Err: err}
	}
	return fmt.Errorf("store: %s %s: %w", op, path, err)
}

// ReadFile returns the version and the content that WriteFile stored. The errors are fs.ErrNotExist,
// *DamageError for any change of the file, or the operation's own.
func ReadFile(fs FS, path string) (version uint32, content []byte, err error) {
	c, err := openContent(fs, path)
	if err != nil {
		return 0, nil, err
	}
	if c.size > MaxFile {
		err = &SizeError{Size: c.size, Max: MaxFile}
		return 0, nil, errors.Join(fmt.Errorf("store: read file %s: %w", path, err), c.Close())
	}
	content = make([]byte, c.size)
	if _, err = io.ReadFull(c, content); err != nil {
		err = fmt.Errorf("store: read file %s: %w", path, err)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return 0, nil, err
	}
	return c.version, content, nil
}

// content streams the body of a file whose checksum was right when it was opened.
type content struct {
	*io.SectionReader
	f       File
	version uint32
	size    int64
}

// Close closes the file.
func (c *content) Close() error { return c.f.Close() }

// openContent opens a file of WriteFile's form and checks all of it before the first byte is handed out.
func openContent(fs FS, path string) (*content, error) {
	f, err := fs.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("store: open file: %w", err)
	}
	c, err := checkContent(f, path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

func checkContent(f File, path string) (*content, error) {
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("store: read file %s: %w", path, err)
	}
	head := make([]byte, min(size, int64(envelopeBytes)))
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), head); err != nil {
		return nil, fmt.Errorf("store: read file %s: %w", path, err)
	}
	version, length, sum, ok := parseEnvelope(head)
	if !ok {
		return nil, &DamageError{File: path, Reason: "the first line is not that of a file of this program"}
	}
	if length != size-int64(envelopeBytes) {
		return nil, &DamageError{File: path, Reason: fmt.Sprintf("the content has %d bytes, written were %d",
			size-int64(envelopeBytes), length)}
	}
	body := io.NewSectionReader(f, int64(envelopeBytes), length)
	crc, err := sumOf(body, length)
	if err != nil {
		return nil, fmt.Errorf("store: read file %s: %w", path, err)
	}
	if crc32.Update(crc, castagnoli, head[:envelopeCRC]) != sum {
		return nil, &DamageError{File: path, Reason: "the checksum does not fit the content"}
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return &content{SectionReader: body, f: f, version: version, size: length}, nil
}

func sumOf(r io.Reader, size int64) (crc uint32, err error) {
	buf := make([]byte, min(size+1, 64<<10))
	for {
		n, err := r.Read(buf)
		crc = crc32.Update(crc, castagnoli, buf[:n])
		if err == io.EOF {
			return crc, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// makePath creates the folder and the parents that it needs, durably, and reports whether it had to. All
// entries down to the folder are synced even when they were there: whoever made them may have been killed
// before that.
func makePath(fs FS, dir string) (created bool, err error) {
	if _, err := fs.List(dir); err != nil && !isNotExist(err) {
		return false, fmt.Errorf("store: list %s: %w", dir, err)
	} else if err != nil {
		created = true
	}
	if err := fs.Mkdir(dir); err != nil {
		return created, fmt.Errorf("store: create folder: %w", err)
	}
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		// A folder further up that may not be read was made by somebody else.
		if err := fs.SyncDir(at); err != nil && !errors.Is(err, os.ErrPermission) {
			return created, failed("sync folder", at, err)
		}
		if at == filepath.Dir(at) {
			return created, nil
		}
	}
}

// makeDir creates a folder in one that is there, durably.
func makeDir(fs FS, dir string) error {
	if err := fs.Mkdir(dir); err != nil {
		return fmt.Errorf("store: create folder: %w", err)
	}
	if err := fs.SyncDir(filepath.Dir(dir)); err != nil {
		return failed("sync folder", filepath.Dir(dir), err)
	}
	return nil
}

// removeTemporary removes what a crash left half written in dir.
func removeTemporary(fs FS, dir string) error {
	entries, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("store: list %s: %w", dir, err)
	}
	for _, e := range entries {
		if e.Dir || !strings.HasSuffix(e.Name, temporary) {
			continue
		}
		if err := fs.Remove(filepath.Join(dir, e.Name)); err != nil && !isNotExist(err) {
			return fmt.Errorf("store: remove a half-written file: %w", err)
		}
	}
	return nil
}
