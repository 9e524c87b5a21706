package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Verify reads a backup whole: every file of its manifest must be there with its length and its SHA-256,
// VERSION must be one that this program reads, and every log must open without a repair. It changes nothing.
func Verify(ctx context.Context, fs FS, backup string) (Manifest, error) {
	m, err := readManifest(fs, backup)
	if err != nil {
		return m, fmt.Errorf("store: verify: %w", err)
	}
	for _, f := range m.Files {
		if err := verifyFile(ctx, fs, filepath.Join(backup, filepath.FromSlash(f.Name)), f); err != nil {
			return m, fmt.Errorf("store: verify: %w", err)
		}
	}
	if _, err := readVersion(fs, filepath.Join(backup, versionName)); err != nil {
		return m, fmt.Errorf("store: verify: %w", err)
	}
	for _, log := range m.Logs {
		if _, err := checkLog(fs, filepath.Join(backup, filepath.FromSlash(log))); err != nil {
			return m, fmt.Errorf("store: verify: %w", err)
		}
	}
	return m, nil
}

func readManifest(fs FS, backup string) (m Manifest, err error) {
	path := filepath.Join(backup, manifestName)
	version, b, err := ReadFile(fs, path)
	if isNotExist(err) {
		return m, fmt.Errorf("%s is no finished backup: it has no %s: %w", backup, manifestName, err)
	}
	if err != nil {
		return m, err
	}
	if version != 1 {
		return m, &SchemaError{Path: path, Schema: int(version), Known: 1, WrittenBy: "a newer program"}
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, &DamageError{File: path, Reason: err.Error()}
	}
	for _, f := range m.Files {
		if !local(f.Name) {
			return m, &DamageError{File: path, Reason: fmt.Sprintf("names the file %q", f.Name)}
		}
	}
	for _, log := range m.Logs {
		if !local(log) {
			return m, &DamageError{File: path, Reason: fmt.Sprintf("names the log %q", log)}
		}
	}
	return m, nil
}

func verifyFile(ctx context.Context, fs FS, path string, want ManifestFile) error {
	f, err := fs.Open(path, os.O_RDONLY)
	if isNotExist(err) {
		return &DamageError{File: path, Reason: "is missing"}
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	h := sha256.New()
	if err == nil {
		_, err = io.Copy(h, &limited{ctx: ctx, r: io.NewSectionReader(f, 0, size)})
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if size != want.Size || hex.EncodeToString(h.Sum(nil)) != want.SHA256 {
		return &DamageError{File: path, Reason: "is not the file that the backup wrote"}
	}
	return nil
}

// Restore makes a data folder of a backup, after Verify. The folder must be new or empty. It gets its name
// only when all of it is on disk, so an interrupted restore leaves nothing that looks like a data folder;
// what it does leave, with the ending .restoring, may be removed.
func Restore(ctx context.Context, fs FS, backup, dir string) error {
	m, err := Verify(ctx, fs, backup)
	if err != nil {
		return err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("store: restore: %w", err)
	}
	if err := emptyDir(fs, dir); err != nil {
		return fmt.Errorf("store: restore: %w", err)
	}
	temp := dir + ".restoring"
	if err := emptyDir(fs, temp); err != nil {
		return fmt.Errorf("store: restore: %w", err)
	}
	c := &copier{fs: fs, target: temp}
	for _, f := range m.Files {
		name := filepath.FromSlash(f.Name)
		p, err := filePiece(fs, filepath.Join(backup, name), f.Size)
		if err != nil {
			return fmt.Errorf("store: restore: %w", err)
		}
		if err := c.copy(ctx, filepath.ToSlash(filepath.Dir(name)), []Piece{p}); err != nil {
			return fmt.Errorf("store: restore: %w", err)
		}
		// The copy is what counts: it may have read other bytes than Verify did.
		if got := c.files[len(c.files)-1]; got != f {
			return fmt.Errorf("store: restore: %w", &DamageError{File: filepath.Join(backup, name),
				Reason: "changed"})
		}
	}
	if err := fs.Remove(dir); err != nil {
		return fmt.Errorf("store: restore: %w", err)
	}
	if err := fs.Rename(temp, dir); err != nil {
		return fmt.Errorf("store: restore: %w", err)
	}
	if err := fs.SyncDir(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("store: restore: %w", failed("sync folder", filepath.Dir(dir), err))
	}
	return nil
}
