package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Live names must be there before the person wonders: what is not answered in time comes from the cache,
// and what is in neither is left out without a word.
const (
	completeTimeout = 150 * time.Millisecond
	cacheFresh      = 5 * time.Second
	cacheKept       = 24 * time.Hour
	maxCache        = 1 << 20
)

// newCompletion makes `plinth completion`.
func newCompletion(p *program) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	cmd := &cobra.Command{
		Use: "completion SHELL", Short: "Print the completion script of a shell", GroupID: groupLook,
		Long: "Prints a script that completes verbs, flags, and the names of the functions and workers of a running engine.",
		Example: "  source <(plinth completion bash)\n" +
			"  plinth completion zsh > \"${fpath[1]}/_plinth\"\n" +
			"  plinth completion fish > ~/.config/fish/completions/plinth.fish\n" +
			"  plinth completion powershell | Out-String | Invoke-Expression",
		Args: args(1, 1, "one shell: bash, zsh, fish or powershell"), ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return wrote(root.GenBashCompletionV2(p.out, true))
			case "zsh":
				return wrote(root.GenZshCompletion(p.out))
			case "fish":
				return wrote(root.GenFishCompletion(p.out, true))
			case "powershell":
				return wrote(root.GenPowerShellCompletionWithDesc(p.out))
			}
			return usage("there is no completion for the shell "+args[0], "use one of "+strings.Join(shells, ", "))
		},
	}
	return p.prints(cmd, formText, nil)
}

// completeFunctions offers the names of functions for the first argument.
func (p *program) completeFunctions(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.live(cmd.Context(), "functions", func(ctx context.Context, c *client) (names []string, err error) {
		rows, err := c.functions(ctx, functionFilter{})
		for _, r := range rows {
			names = append(names, described(r.FunctionID, r.Description))
		}
		return names, err
	}), cobra.ShellCompDirectiveNoFileComp
}

// completeWorkers offers the names of workers for the first argument.
func (p *program) completeWorkers(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.live(cmd.Context(), "workers", func(ctx context.Context, c *client) (names []string, err error) {
		rows, err := c.workers(ctx, workerFilter{})
		for _, r := range rows {
			names = append(names, described(r.Name, r.Description))
		}
		return names, err
	}), cobra.ShellCompDirectiveNoFileComp
}

// completeUsers and completeKeys offer the names of accounts and keys for the first argument.
func (p *program) completeUsers(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	return p.liveOffice(cmd.Context(), args, func(ctx context.Context, o *office) (names []string, err error) {
		rows, err := o.users(ctx)
		for _, u := range rows {
			names = append(names, described(u.Name, u.Role))
		}
		return names, err
	})
}

func (p *program) completeKeys(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	return p.liveOffice(cmd.Context(), args, func(ctx context.Context, o *office) (names []string, err error) {
		rows, err := o.keys(ctx)
		for _, k := range rows {
			names = append(names, described(k.Name, k.Kind+", "+k.Status))
		}
		return names, err
	})
}

// liveOffice asks the admin door for names. They are not kept: who has an account is nothing for a cache.
func (p *program) liveOffice(ctx context.Context, args []string,
	ask func(context.Context, *office) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	o, err := p.office()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := ask(ctx, o)
	if err != nil {
		names = nil
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// described is a name with what the shell may show beside it, on one line.
func described(name, about string) string {
	about = strings.Join(strings.Fields(about), " ")
	if about == "" {
		return name
	}
	return name + "\t" + about
}

// live asks the engine for names, or takes those of the last time.
func (p *program) live(ctx context.Context, kind string, ask func(context.Context, *client) ([]string,
	error)) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	d, err := p.door()
	if err != nil {
		return nil
	}
	file := p.cacheFile(kind, d.URL)
	names, age := readCache(file)
	if age < cacheFresh {
		return names
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	c, err := p.connect(ctx, completeTimeout)
	if err != nil {
		return names
	}
	defer c.close()
	fresh, err := ask(ctx, c)
	if err != nil {
		return names
	}
	writeCache(file, fresh)
	return fresh
}

// cacheFile is where the names of an engine are kept, or "" without a folder for that.
func (p *program) cacheFile(kind, engine string) string {
	dir := p.getenv("XDG_CACHE_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return ""
		}
	}
	sum := sha256.Sum256([]byte(engine))
	return filepath.Join(dir, "plinth", kind+"-"+hex.EncodeToString(sum[:8])+".json")
}

// readCache gives the names kept and their age; cacheKept and more when there are none.
func readCache(file string) (names []string, age time.Duration) {
	st, err := os.Stat(file)
	if err != nil || st.Size() > maxCache || time.Since(st.ModTime()) > cacheKept {
		return nil, cacheKept
	}
	b, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(b, &names) != nil {
		return nil, cacheKept
	}
	return names, max(0, time.Since(st.ModTime()))
}

// writeCache keeps the names for next time. A cache that cannot be written is no cache.
func writeCache(file string, names []string) {
	b, err := json.Marshal(names)
	if err != nil || file == "" || len(b) > maxCache || os.MkdirAll(filepath.Dir(file), 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(file), "names-*")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if closeErr := f.Close(); err != nil || closeErr != nil || os.Rename(f.Name(), file) != nil {
		_ = os.Remove(f.Name())
	}
}
