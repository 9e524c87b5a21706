//go:build unix

package store

import (
	"errors"
	"os"
)

// syncDir opens a folder and syncs its entries.
func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// diskFull has nothing to add to POSIX.
func diskFull(error) bool { return false }
