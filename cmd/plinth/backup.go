package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/plinth-run/plinth/internal/fault"
	"github.com/plinth-run/plinth/internal/house"
	"github.com/plinth-run/plinth/internal/store"
)

// backupRow is what a backup holds.
type backupRow struct {
	Path    string `json:"path"`
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
	Version string `json:"written_by"`
}

const backupTimeout = 10 * time.Minute

// newBackup makes `plinth backup` with its verbs.
func newBackup(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup", Short: "Copy everything while it runs, check a copy, restore one", GroupID: groupLook,
		Long: "A backup is a folder with every store of a data folder, each consistent in itself, and a list of files with their\n" +
			"checksums. It holds no secret in the clear, but hashes of passwords and keys: guard it like the data folder.",
		Example: "  plinth backup create /var/backups/plinth-1\n  plinth backup verify /var/backups/plinth-1\n" +
			"  plinth backup restore /var/backups/plinth-1 ./new-data",
	}
	cmd.AddCommand(p.newBackupCreate(), p.newBackupVerify(), p.newBackupRestore())
	return cmd
}

func (p *program) newBackupCreate() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use: "create FOLDER", Short: "Copy every store of a running Plinth into a new folder on its machine",
		Example: "  plinth backup create /var/backups/plinth-1 --json", Args: args(1, 1, "a new folder"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return p.withOffice(func(o *office) error {
				if !filepath.IsAbs(given[0]) && !onThisMachine(o.door.Admin) {
					return usage("the folder is on the server, so its path must be absolute", "such as /var/backups/plinth-1")
				}
				target, err := filepath.Abs(given[0])
				if err != nil {
					return usage("the folder has no path: "+err.Error(), "give an absolute path")
				}
				if dry {
					return p.finish("copy every store into "+target, true)
				}
				o.client.Timeout = backupTimeout
				var row backupRow
				if err := o.ask(cmd.Context(), http.MethodPost, "/api/backups", map[string]string{"target": target},
					&row); err != nil {
					return err
				}
				return p.printBackup("copied", row)
			})
		},
	}
	p.doorFlags(cmd.Flags())
	dryFlag(cmd, &dry)
	return p.prints(cmd, formObject, backupRow{})
}

func (p *program) printBackup(what string, row backupRow) error {
	p.note("%s %d files, %s: %s", what, row.Files, house.RoundSize(row.Bytes), row.Path)
	if p.wantJSON() {
		return p.printJSON(row)
	}
	return nil
}

func rowOf(path string, m store.Manifest) backupRow {
	row := backupRow{Path: path, Files: len(m.Files), Version: m.WrittenBy}
	for _, f := range m.Files {
		row.Bytes += f.Size
	}
	return row
}

func (p *program) newBackupVerify() *cobra.Command {
	return p.prints(&cobra.Command{
		Use: "verify FOLDER", Short: "Read a backup whole and check it; needs no server",
		Long: "Checks the length and the checksum of every file, that nothing is missing, that this version can read it, and that every\n" +
			"log opens without a repair. It changes nothing.",
		Example: "  plinth backup verify /var/backups/plinth-1", Args: args(1, 1, "the folder of a backup"),
		RunE: func(cmd *cobra.Command, given []string) error {
			m, err := store.Verify(cmd.Context(), store.OS(), given[0])
			if err != nil {
				return badBackup(given[0], err)
			}
			return p.printBackup("whole:", rowOf(given[0], m))
		},
	}, formObject, backupRow{})
}

func badBackup(path string, err error) error {
	return &house.Problem{Kind: fault.KindOf(err), Code: first(fault.CodeOf(err), "bad_backup"),
		What: "the backup " + path + " cannot be used", Why: err.Error(), Do: "use another one", Err: err}
}

func (p *program) newBackupRestore() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use: "restore FOLDER DATA", Short: "Make a new data folder of a backup; needs no server",
		Long:    "Checks the backup first. DATA must be new or empty, and gets its name only when all of it is on disk.",
		Example: "  plinth backup restore /var/backups/plinth-1 ./new-data\n  plinth serve --data ./new-data",
		Args:    args(2, 2, "the folder of a backup and a new data folder"),
		RunE: func(cmd *cobra.Command, given []string) error {
			m, err := store.Verify(cmd.Context(), store.OS(), given[0])
			if err != nil {
				return badBackup(given[0], err)
			}
			target, err := filepath.Abs(given[1])
			if err != nil {
				return usage("the folder has no path: "+err.Error(), "give an absolute path")
			}
			if held, err := os.ReadDir(target); err == nil && len(held) > 0 {
				return &house.Problem{Kind: fault.Conflict, Code: "folder_not_empty",
					What: "cannot restore into " + target, Why: "it holds something already",
					Do: "name a folder that is new or empty"}
			}
			if dry {
				return p.finish(fmt.Sprintf("restore %d files into %s", len(m.Files), target), true)
			}
			if err := store.Restore(cmd.Context(), store.OS(), given[0], target); err != nil {
				return &house.Problem{Kind: fault.KindOf(err), Code: first(fault.CodeOf(err), "not_restored"),
					What: "cannot restore into " + target, Why: err.Error(),
					Do: "look at the reason; " + target + ".restoring, if it is there, may be removed", Err: err}
			}
			if err := p.printBackup("restored", rowOf(target, m)); err != nil {
				return err
			}
			p.note("start it with: plinth serve --data %s", given[1])
			return nil
		},
	}
	dryFlag(cmd, &dry)
	return p.prints(cmd, formObject, backupRow{})
}
