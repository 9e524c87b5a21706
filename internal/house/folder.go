package house

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/plinth-run/plinth/internal/fault"
)

// A Folder is the data folder as the banner and the doctor tell it.
type Folder struct {
	Path     string `json:"path"` // absolute
	Persists bool   `json:"persists"`
	Note     string `json:"note"` // "kept between starts", or why it is not
}

// LookAtFolder says where the data folder is and whether what is written there outlives a restart of
// the machine or container. The folder need not exist: then its nearest parent is looked at.
func LookAtFolder(path string) Folder {
	full, err := filepath.Abs(path)
	if err != nil {
		full = path
	}
	f := Folder{Path: full, Persists: true, Note: "kept between starts"}
	there := existing(full)
	if why := volatile(there); why != "" {
		f.Persists, f.Note = false, why
	} else if inside(full, filepath.Clean(os.TempDir())) {
		f.Persists, f.Note = false, "in the folder for temporary files: the system may empty it"
	}
	return f
}

// inside says whether path is the folder or lies below it.
func inside(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+string(filepath.Separator))
}

// existing is the path itself or the nearest parent that is there.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || filepath.Dir(path) == path {
			return path
		}
		path = filepath.Dir(path)
	}
}

// CheckFolder makes the data folder (0700) when it is not there, and proves that a file can be written
// in it. Its error is a *Problem.
func CheckFolder(path string, s *Setting) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return FolderProblem(err, s, path)
	}
	f, err := os.CreateTemp(path, ".write-check-*")
	if err != nil {
		return FolderProblem(err, s, path)
	}
	_, err = f.Write([]byte("plinth\n"))
	err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	return FolderProblem(err, s, path)
}

// ProbeFolder says whether CheckFolder would do, and leaves everything as it was: a folder that is not
// there is tried beneath its nearest parent.
func ProbeFolder(path string, s *Setting) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return CheckFolder(path, s)
	}
	made, err := os.MkdirTemp(existing(filepath.Clean(path)), ".plinth-check-*")
	if err == nil {
		err = os.Remove(made)
	}
	return FolderProblem(err, s, path)
}

// Nearest is the folder itself, or the nearest parent that is there.
func (f Folder) Nearest() string { return existing(f.Path) }

// FolderProblem tells why the data folder could not be had and what helps. An error of kind Conflict is
// taken for the lock: another process has the folder.
func FolderProblem(err error, s *Setting, path string) error {
	if err == nil {
		return nil
	}
	p := &Problem{Kind: fault.Unavailable, Code: CodeFolderRefused, Err: err,
		What: fmt.Sprintf("cannot use the data folder %s (%s)", path, s.Key), Why: reason(err)}
	other := fmt.Sprintf("choose another folder with --%s or %s", s.Flag(), s.Env())
	switch {
	case diskFull(err):
		p.Code, p.Why, p.Do = CodeDiskFull, "the disk is full", "free some space, or "+other
	case errors.Is(err, fs.ErrPermission):
		p.Why = fmt.Sprintf("user %d may not write there", os.Getuid())
		p.Do = "give the folder to this user, or " + other
	case errors.Is(err, syscall.EROFS):
		p.Why, p.Do = "it is on a file system mounted read-only", other
	case errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist):
		p.Why, p.Do = "it, or a part of its path, is a file", other
	case fault.KindOf(err) == fault.Conflict:
		p.Kind, p.Code, p.Why = fault.Conflict, CodeFolderLocked, "another Plinth has it open"
		p.Do = "stop the other one, or " + other
	default:
		p.Do = other
	}
	return p
}

// diskFull knows ENOSPC, and ERROR_DISK_FULL of Windows.
func diskFull(err error) bool {
	const windowsDiskFull = 112
	return errors.Is(err, syscall.ENOSPC) ||
		runtime.GOOS == "windows" && errors.Is(err, syscall.Errno(windowsDiskFull))
}
