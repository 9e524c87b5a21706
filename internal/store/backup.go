package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Piece is one file of a backup. Its bytes do not change while the function that was given it runs.
type Piece struct {
	Name string // inside the folder of its source
	Size int64
	Open func() (io.ReadCloser, error)
}

// Source is what can be backed up while it is in use: a Log, a Room's small files, a database elsewhere.
// Backup calls fn once with files that belong together. Writers go on meanwhile; what they write is not in
// it.
type Source interface {
	Backup(ctx context.Context, fn func([]Piece) error) error
}

// Backup hands fn a consistent view of the log: the newest snapshot and every record that is durable now. No
// file of the view is removed before fn returns. Writers are not stopped.
func (l *Log) Backup(ctx context.Context, fn func([]Piece) error) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: backup: %w", err)
	}
	l.trim.Lock()
	segments, floor, _, snapshot := l.catalog.pin()
	l.trim.Unlock()
	// What could not be removed at the end is tried again by the next truncation.
	defer func() { err = errors.Join(err, l.catalog.unpin()) }()
	head := fmt.Appendf(nil, metaForm, l.salt, floor)
	sum, err := sumOf(bytes.NewReader(head), int64(len(head)))
	if err != nil {
		return err
	}
	head = append(envelope(1, int64(len(head)), sum), head...)
	pieces := []Piece{{Name: metaName, Size: int64(len(head)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(head)), nil
	}}}
	if snapshot != 0 {
		p, err := l.piece(fileName(l.dir, snapshot, snapshotExt), -1)
		if err != nil {
			return fmt.Errorf("store: backup: %w", err)
		}
		pieces = append(pieces, p)
	}
	for _, s := range segments {
		p, err := l.piece(s.path, s.end)
		if err != nil {
			return fmt.Errorf("store: backup: %w", err)
		}
		pieces = append(pieces, p)
	}
	return fn(pieces)
}

// piece is a file of the log up to size; -1 is all of it.
func (l *Log) piece(path string, size int64) (Piece, error) { return filePiece(l.fs, path, size) }

func filePiece(fs FS, path string, size int64) (Piece, error) {
	if size < 0 {
		f, err := fs.Open(path, os.O_RDONLY)
		if err != nil {
			return Piece{}, err
		}
		size, err = f.Size()
		if err = errors.Join(err, f.Close()); err != nil {
			return Piece{}, err
		}
	}
	return Piece{Name: filepath.Base(path), Size: size, Open: func() (io.ReadCloser, error) {
		f, err := fs.Open(path, os.O_RDONLY)
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(f, 0, size), f}, nil
	}}, nil
}

// Backup hands fn the room's small files. None is replaced before fn returns: WriteFile waits.
func (r *Room) Backup(ctx context.Context, fn func([]Piece) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: backup: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, err := r.fs.List(r.path)
	if err != nil {
		return fmt.Errorf("store: backup: %w", err)
	}
	var pieces []Piece
	for _, e := range entries {
		if e.Dir {
			continue
		}
		own, err := ownFile(r.fs, filepath.Join(r.path, e.Name))
		if err != nil {
			return fmt.Errorf("store: backup: %w", err)
		}
		if !own {
			continue
		}
		p, err := filePiece(r.fs, filepath.Join(r.path, e.Name), -1)
		if err != nil {
			return fmt.Errorf("store: backup: %w", err)
		}
		pieces = append(pieces, p)
	}
	return fn(pieces)
}

// ownFile reports whether the file starts like one of WriteFile's. Others, databases above all, cannot be
// copied while they are in use and have a Source of their own.
func ownFile(fs FS, path string) (bool, error) {
	f, err := fs.Open(path, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	b := make([]byte, len("plinth-file "))
	_, err = f.ReadAt(b, 0)
	if err == io.EOF {
		err = nil // shorter: not one of ours
	}
	return string(b) == "plinth-file ", errors.Join(err, f.Close())
}

// Manifest lists the files of a backup. It is written last, so a backup without one is not finished.
type Manifest struct {
	WrittenBy string         `json:"written_by"`
	Files     []ManifestFile `json:"files"`
	Logs      []string       `json:"logs"` // folders that hold a log
}

// ManifestFile is one file: its path with slashes, relative to the backup.
type ManifestFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

const manifestName = "MANIFEST"

// Backup copies the sources, keyed by their folder relative to the data folder ("engine", "engine/queue"),
// into the folder target, which must be new or empty and lie outside of the data folder. Each source is
// consistent in itself. The copy has the shape of a data folder; VERSION and MANIFEST come with it.
func (d *Dir) Backup(ctx context.Context, target string, sources map[string]Source) (Manifest, error) {
	target, err := filepath.Abs(target)
	if err != nil {
		return Manifest{}, fmt.Errorf("store: backup: %w", err)
	}
	if target == d.path || strings.HasPrefix(target, d.path+string(filepath.Separator)) {
		return Manifest{}, fmt.Errorf("store: backup: %s lies inside of the data folder", target)
	}
	if err := emptyDir(d.fs, target); err != nil {
		return Manifest{}, fmt.Errorf("store: backup: %w", err)
	}
	d.mu.Lock()
	text := d.version.encode()
	d.mu.Unlock()
	c := &copier{fs: d.fs, target: target}
	all := maps.Clone(sources)
	if all == nil {
		all = map[string]Source{}
	}
	all["."] = fixed{{Name: versionName, Size: int64(len(text)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text)), nil
	}}}
	m := Manifest{WrittenBy: d.writer}
	for _, folder := range slices.Sorted(maps.Keys(all)) {
		if !local(folder) {
			return Manifest{}, fmt.Errorf("store: backup: %q is no folder inside of the data folder", folder)
		}
		err := all[folder].Backup(ctx, func(pieces []Piece) error { return c.copy(ctx, folder, pieces) })
		if err != nil {
			return Manifest{}, fmt.Errorf("store: backup of %s: %w", folder, err)
		}
		if _, is := all[folder].(*Log); is {
			m.Logs = append(m.Logs, folder)
		}
	}
	m.Files = c.files
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return Manifest{}, fmt.Errorf("store: backup: %w", err)
	}
	if err := WriteFile(d.fs, filepath.Join(target, manifestName), 1, b); err != nil {
		return Manifest{}, fmt.Errorf("store: backup: %w", err)
	}
	return m, nil
}

// fixed is a source of pieces that are there already.
type fixed []Piece

// Backup hands the pieces over.
func (f fixed) Backup(_ context.Context, fn func([]Piece) error) error { return fn(f) }

// local reports whether a slash path stays inside of the folder that it is relative to.
func local(name string) bool {
	return name == path.Clean(name) && filepath.IsLocal(filepath.FromSlash(name)) &&
		!strings.Contains(name, "\\")
}

// emptyDir makes sure that there is an empty folder at path, durably.
func emptyDir(fs FS, path string) error {
	if _, err := makePath(fs, path); err != nil {
		return err
	}
	entries, err := fs.List(path)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty: it has %s", path, entries[0].Name)
	}
	return nil
}

// copier copies pieces into a folder, durably, and notes their sums.
type copier struct {
	fs     FS
	target string
	files  []ManifestFile
}

func (c *copier) copy(ctx context.Context, folder string, pieces []Piece) error {
	dir := filepath.Join(c.target, filepath.FromSlash(folder))
	if err := c.fs.Mkdir(dir); err != nil {
		return err
	}
	for _, p := range pieces {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := p.Open()
		if err != nil {
			return err
		}
		sum, err := copyFile(ctx, c.fs, filepath.Join(dir, p.Name), r, p.Size)
		if err = errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("copy %s: %w", p.Name, err)
		}
		c.files = append(c.files, ManifestFile{Name: path.Join(folder, p.Name), Size: p.Size, SHA256: sum})
	}
	// The folder, and every parent that may have been created for it.
	for at := dir; ; at = filepath.Dir(at) {
		if err := c.fs.SyncDir(at); err != nil {
			return failed("sync folder", at, err)
		}
		if at == c.target {
			return nil
		}
	}
}

// copyFile writes size bytes of r to a new file, syncs it, and returns the SHA-256 in hex. The entry in the
// folder is the caller's to sync.
func copyFile(ctx context.Context, fs FS, to string, r io.Reader, size int64) (string, error) {
	f, err := fs.Open(to, os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		return "", wrapWrite("create", to, err)
	}
	h := sha256.New()
	w := &tail{f: f}
	from := &limited{ctx: ctx, r: io.LimitReader(r, size+1)}
	n, err := io.CopyBuffer(io.MultiWriter(w, h), from, make([]byte, min(size+1, 256<<10)))
	switch {
	case err != nil:
		err = wrapWrite("write", to, err)
	case n != size:
		err = fmt.Errorf("store: %s has %d bytes where %d were expected", to, n, size)
	default:
		if err = f.Sync(); err != nil {
			err = failed("sync", to, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Close())
}

// limited ends a copy with its context. It lives for one copy, which is why it may hold it.
type limited struct {
	ctx context.Context
	r   io.Reader
}

func (l *limited) Read(b []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	return l.r.Read(b)
}
