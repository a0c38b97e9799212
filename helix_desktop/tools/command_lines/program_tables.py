"""Tables of programs that start other programs, and where these are in the arguments. For `command_analysis.py`."""

from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class WrapperProgram:
    """A program that runs the command written behind its own options. `flags` and `takes`: its short options without and
    with a value; `words`, the long ones with a value; `bare`, without. `operands`: how many words of its own come first.
    """

    flags: str = ""
    takes: str = ""
    bare: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    operands: int = 0
    sets: bool = False


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


WRAPPERS = {
    "nice": WrapperProgram("0123456789", "n", words=word_set("adjustment")), "nohup": WrapperProgram(),
    "setsid": WrapperProgram("cfw", bare=word_set("ctty fork wait")),
    "timeout": WrapperProgram("vfp", "ks", word_set("foreground preserve-status verbose"), word_set("kill-after signal"), 1),
    "stdbuf": WrapperProgram("", "ioe", words=word_set("input output error")),
    "ionice": WrapperProgram("t", "cn", word_set("ignore"), word_set("class classdata")),
    "chrt": WrapperProgram("abdfiorRvm", "TPD", word_set("all-tasks batch deadline fifo idle other rr verbose"), operands=1),
    "taskset": WrapperProgram("ac", "", word_set("all-tasks cpu-list"), operands=1),
    "time": WrapperProgram("apvq", "fo", word_set("append portability verbose quiet"), word_set("format output")),
    "command": WrapperProgram("p"), "builtin": WrapperProgram(), "exec": WrapperProgram("cl", "a"), "doas": WrapperProgram("Ln", "uC"),
    "sudo": WrapperProgram(
        "AbBEHnNPSis", "CDghpRrTtUu",
        word_set("askpass background bell preserve-env set-home non-interactive no-update preserve-groups stdin login shell"),
        word_set("close-from chdir group host prompt chroot role command-timeout type other-user user"), sets=True,
    ),
    "unshare": WrapperProgram(
        "imnpuUCTrcf", "SGRw",
        word_set("ipc mount net pid uts user cgroup time map-root-user map-current-user map-auto keep-caps fork kill-child mount-proc"),
        word_set("setuid setgid root wd propagation setgroups map-user map-group map-users map-groups"),
    ),
    "chroot": WrapperProgram("", "", word_set("skip-chdir"), word_set("groups userspec"), 1),
    "choom": WrapperProgram("", "np", words=word_set("adjust pid")), "prlimit": WrapperProgram("", "p", words=word_set("pid output")),
    "linux32": WrapperProgram("vRBFILSTXZ3"), "linux64": WrapperProgram("vRBFILSTXZ3"), "catchsegv": WrapperProgram(),
    "tini": WrapperProgram("gsvw", "pe"), "dumb-init": WrapperProgram("cv", "r"), "gosu": WrapperProgram(operands=1),
    "su-exec": WrapperProgram(operands=1), "setuidgid": WrapperProgram("s", operands=1), "softlimit": WrapperProgram("", "adflmnopqrstcu"),
    "envdir": WrapperProgram(operands=1), "eatmydata": WrapperProgram(), "torsocks": WrapperProgram("iqd"), "torify": WrapperProgram(),
    "proxychains": WrapperProgram("q", "f"), "proxychains4": WrapperProgram("q", "f"),
    "rlwrap": WrapperProgram("acEhirRnNuUwW", "bCfgHlmpPqsSt"), "unbuffer": WrapperProgram("p"),
}  # fmt: skip

# Programs that start another program, which any of their arguments may name.
LOOSE_WRAPPERS = word_set(
    """setarch strace ltrace valgrind perf gdb lldb xvfb-run dbus-run-session dbus-launch systemd-run systemd-inhibit firejail bwrap
    proot fakeroot fakechroot faketime nsenter setpriv capsh prlimit numactl cgexec runcon chpst pkexec npx bunx pnpx uvx pipx
    cross-env dotenv dotenvx direnv op doppler aws-vault rustup entr reflex nodemon watchexec hyperfine coverage kernprof
    mpirun mpiexec srun ccache distcc nix-shell guix flatpak-spawn toolbox distrobox-enter screen tmux dtach abduco ts
    start-stop-daemon daemonize supervise run-parts parallel-rust rush lockrun setlock with-contenv chronic ifne vipe
    xdg-open run-one cpulimit ssh sshpass mosh docker podman nerdctl kubectl lxc-attach vagrant machinectl at batch
    crontab expect socat nc ncat netcat xterm gnome-terminal konsole"""
)
# Programs that start another program after certain words, such as `uv run` and `npm exec`.
LOOSE_AFTER = {
    "uv": {"run", "tool", "x"}, "poetry": {"run"}, "pipenv": {"run"}, "pdm": {"run"}, "hatch": {"run", "-e"}, "rye": {"run"},
    "pixi": {"run", "exec"}, "conda": {"run"}, "mamba": {"run"}, "micromamba": {"run"}, "npm": {"exec", "x", "explore"},
    "pnpm": {"exec", "dlx"}, "yarn": {"exec", "dlx", "run"}, "bun": {"x"}, "bundle": {"exec"}, "rbenv": {"exec"},
    "pyenv": {"exec"}, "mise": {"exec", "x"}, "asdf": {"exec"}, "nvm": {"exec", "run"}, "volta": {"run"}, "nix": {"run", "shell", "develop"},
    "cargo": {"watch", "with"}, "go": {"run", "generate", "tool"}, "deno": {"task"}, "gh": {"alias", "extension"}, "ip": {"netns", "vrf"},
    "flatpak": {"run"}, "snap": {"run"}, "jj": {"util", "run"}, "hg": {"bisect"}, "svn": {"diff"},
}  # fmt: skip

SHELLS = frozenset({"sh", "bash", "dash", "ash", "rbash"})
OTHER_SHELLS = word_set(
    "ksh ksh93 mksh lksh pdksh oksh yash posh zsh fish csh tcsh rc es elvish nu xonsh pwsh powershell cmd hush msh"
)
MULTI_CALL_PROGRAMS = frozenset({"busybox", "toybox"})

# Options whose value is a command line or the name of a program.
COMMAND_OPTIONS = {
    "tar": ("-I", "-F", "--to-command", "--use-compress-program", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command"),
    "bsdtar": ("--use-compress-program",), "rsync": ("-e", "--rsh", "--rsync-path"), "scp": ("-S",), "sftp": ("-S", "-D"),
    "sort": ("--compress-program",), "split": ("--filter",), "man": ("-P", "-H", "--pager", "--html"), "zip": ("-TT", "--unzip-command"),
    "tcpdump": ("-z",), "fd": ("-x", "-X", "--exec", "--exec-batch"), "fdfind": ("-x", "-X", "--exec", "--exec-batch"),
    "rg": ("--pre", "--hostname-bin"), "wget": ("--use-askpass",), "install": ("--strip-program",), "mapfile": ("-C",),
    "readarray": ("-C",), "compgen": ("-C", "-F", "-W"), "complete": ("-C", "-F", "-W"), "dpkg": ("--pre-invoke", "--post-invoke"),
    "cmake": ("-E",), "mypy": ("--python-executable",), "pyright": ("--pythonpath",),
    "go": ("-exec", "--exec", "-toolexec", "--toolexec", "-vettool", "--vettool"),
    "npm": ("--script-shell", "--node-options", "--shell", "--git"),
    "pnpm": ("--script-shell", "--node-options", "--shell", "--config.script-shell"), "yarn": ("--script-shell", "--use-yarnrc"),
    "kubectl": ("--kubeconfig",),
}  # fmt: skip

# These options are complete, although other options in these tables begin in the same way.
WHOLE_OPTIONS = word_set("-- --cc --edit --pdb --strip")
# Options that pass code to these programs on the command line.
CODE_OPTIONS = {
    "python": "c", "pypy": "c", "perl": "eE", "ruby": "e", "node": "ep", "nodejs": "ep", "php": "rRBE", "lua": "e", "luajit": "e",
    "Rscript": "e", "R": "e", "julia": "eE", "osascript": "e", "bun": "ep", "deno": "", "guile": "c", "racket": "e", "sbcl": "",
    "ghc": "e", "groovy": "e", "scala": "e", "elixir": "e", "erl": "", "vim": "cS", "vi": "cS", "nvim": "cS", "ex": "cS", "view": "cS", "gvim": "cS",
    "emacs": "", "gdb": "", "tclsh": "", "wish": "", "expect": "c", "sqlite3": "", "psql": "c", "mysql": "e", "jshell": "", "ed": "", "bc": "", "m4": "", "gnuplot": "e",
}  # fmt: skip
CODE_WORDS = word_set("eval evaluate print execute command cmd batch run code ex iex p")
EDITORS = word_set("vim vi nvim ex view gvim emacs")  # Without a file, these editors read no code from their input.
# Short and long options that make a program load code, read settings that may load code, or write a file.
# `@` means that the program also reads options from a file.
LOADING_OPTIONS = {
    "pytest": ("pco@", "config-file rootdir confcutdir override-ini pdbcls cov-config cov-report basetemp log-file junitxml junit-xml"),
    "pylint": ("@", "rcfile load-plugins init-hook output unsafe-load-any-extension extension-pkg-allow-list extension-pkg-whitelist"),
    "mypy": ("@", "config-file python-executable custom-typeshed-dir"), "pyright": ("pv", "project venv-path venvpath pythonpath"),
    "bandit": ("o", "output"), "ruff": ("o", "output-file"),
    "eslint": ("cfo", "config rulesdir plugin parser format resolve-plugins-relative-to output-file cache-location cache-file"),
    "prettier": ("", "config plugin plugin-search-dir parser cache-location"),
    "stylelint": ("cfo", "config config-basedir custom-syntax custom-formatter formatter output-file cache-location"),
    "markdownlint": ("cro", "config rules output"),
    "mocha": ("rRunepc", """require config package reporter ui file import loader experimental-loader node-option env-file eval print opts
        reporter-option"""),
    "jest": ("c", """config global-setup global-teardown setup-files setup-files-after-env env test-environment preset reporters resolver
        runner test-runner transform test-sequencer root-dir roots projects filter module-loader modulepaths module-directories
        watch-plugins output-file coverage-directory cache-directory test-results-processor prettier-path dependency-extractor
        snapshot-serializers"""),
    "vitest": ("cr", """config root dir environment runner reporter pool exec-argv pooloptions.forks.execargv pooloptions.threads.execargv
        output-file project workspace coverage.customprovidermodule typecheck.checker globalsetup setupfiles"""),
    "go": ("", """exec toolexec vettool ldflags gcflags asmflags gccgoflags compiler overlay modfile pkgdir c o outputdir coverprofile
        cpuprofile memprofile blockprofile mutexprofile trace"""),
    "cargo": ("ZC", "config manifest-path target-dir artifact-dir out-dir"),
    "npm": ("C", "prefix script-shell shell node-options userconfig globalconfig git init-module"),
    "pnpm": ("C", "dir script-shell shell node-options config.script-shell"), "yarn": ("", "cwd script-shell use-yarnrc"),
    "pip": ("", "python log"), "uv": ("p", "python script project directory config-file"),
    "dotnet": ("", "p property logger l distributedlogger testadapterpath settings diag"), "git": ("", "output"), "sort": ("o", "output"),
    "tree": ("o", ""), "file": ("C", "compile"), "gofmt": ("", "cpuprofile"), "make": ("fI", "file makefile include-dir eval"),
    "find": ("", "delete fprint fprint0 fprintf fls"), "flake": ("", "config append-config output-file"),
}  # fmt: skip
# Harmless options that begin in the same way as some of these.
UNLIKE_LOADING_OPTIONS = word_set("cache co cov cover coverage pdb run target")
# Programs whose first argument, apart from options, is code.
SCRIPT_LANGUAGES = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk", "sed", "gsed"})

# Matches code that starts other programs or builds code.
STARTING_CODE = (
    r"system|popen|subprocess|\bexec|execv|spawn|\bfork\b|\bpty\b|ctypes|__import__|importlib|\beval\b|compile\(|child_process|"
    r"proc_open|shell_exec|passthru|\bqx\b|`|%x|(?m:^)(?>.*?\bopen\b).*\||\|\s*getline|\|\s*[\"']|\"\s*\||Process\b|\bsh\b|\bcmd\b|:!|!"
)

# Variables whose value is a command line for another program to run.
COMMAND_VARIABLES = word_set(
    """GIT_SSH GIT_SSH_COMMAND GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_PAGER GIT_EXTERNAL_DIFF GIT_ASKPASS GIT_PROXY_COMMAND
    SSH_ASKPASS PAGER MANPAGER EDITOR VISUAL FCEDIT BROWSER LESSOPEN LESSCLOSE SHELL SUDO_ASKPASS SUDO_EDITOR RSYNC_RSH CVS_RSH
    SYSTEMD_EDITOR SYSTEMD_PAGER KUBE_EDITOR HGEDITOR SVN_EDITOR CONFIG_SHELL"""
)
# Variables that make a program or a shell load or run something first.
LOADING_VARIABLES = word_set(
    """BASH_ENV ENV LD_PRELOAD LD_AUDIT PS0 PS1 PS2 PS3 PS4 PROMPT_COMMAND SHELLOPTS BASHOPTS BASH_LOADABLES_PATH TAR_OPTIONS
    MAKEFLAGS GNUMAKEFLAGS GIT_EXEC_PATH GIT_TEMPLATE_DIR GIT_CONFIG GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG_COUNT
    GIT_CONFIG_PARAMETERS XDG_CONFIG_HOME DYLD_INSERT_LIBRARIES HOME ZDOTDIR FPATH CDPATH EXECIGNORE"""
)
LOADING_BEGINNINGS = ("BASH_FUNC_", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_")

# Programs whose arguments are data, so a program's name in them starts nothing.
DATA_PROGRAMS = word_set(
    """echo printf cat ls head tail wc grep egrep fgrep true false : test [ cd pwd mkdir rmdir touch rm mv cp ln chmod chown
    stat file du df date sleep basename dirname realpath readlink diff cmp comm cut tr uniq tee tac rev nl seq sha256sum md5sum
    read export local declare typeset readonly unset set shift return exit break continue wait kill jobs type which whereis hash
    umask ulimit getopts pushd popd dirs id whoami uname hostname env printenv column fold fmt paste join jq tree less more
    od xxd hexdump strings base64 git ps top free uptime curl ping"""
)
# Programs whose first argument is a subcommand, whatever its name.
SUBCOMMANDS = word_set(
    "npm pnpm yarn cargo go pip uv poetry docker podman kubectl gh apt brew dotnet conda helm aws gcloud az svn hg"
)
# Programs that copy, move or write files.
FILE_PLACING_PROGRAMS = word_set(
    "cp mv ln install tee dd rsync tar unzip curl wget gunzip base64 patch sed cpio 7z scp"
)

GIT_FLAGS = word_set(
    """--version --help -h -p --paginate -P --no-pager --no-replace-objects --bare --literal-pathspecs --glob-pathspecs
    --noglob-pathspecs --icase-pathspecs --no-optional-locks --html-path --man-path --info-path --exec-path --no-lazy-fetch
    --no-advice"""
)
GIT_VALUES = word_set("-C -c --git-dir --work-tree --namespace --super-prefix --config-env --attr-source --list-cmds")
GIT_COMMANDS = word_set(
    """add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap
    check-ref-format checkout checkout-index cherry cherry-pick citool clean clone column commit commit-graph commit-tree
    config count-objects credential describe diff diff-files diff-index diff-tree difftool fast-export fast-import fetch
    fetch-pack filter-branch fmt-merge-msg for-each-ref for-each-repo format-patch fsck gc get-tar-commit-id grep gui
    hash-object help hook index-pack init init-db instaweb interpret-trailers log ls-files ls-remote ls-tree mailinfo
    mailsplit maintenance merge merge-base merge-file merge-index merge-tree mergetool mktag mktree multi-pack-index mv
    name-rev notes pack-objects pack-refs patch-id prune prune-packed pull push range-diff read-tree rebase receive-pack
    reflog remote repack replace request-pull rerere reset restore rev-list rev-parse revert rm send-email send-pack
    shortlog show show-branch show-index show-ref sparse-checkout stage stash status stripspace submodule switch
    symbolic-ref tag unpack-file unpack-objects update-index update-ref update-server-info upload-pack var verify-commit
    verify-pack verify-tag version whatchanged worktree write-tree"""
)
GIT_COMMAND_OPTIONS = word_set(
    "-x --exec --extcmd -u --upload-pack --receive-pack --open-files-in-pager --tool --smtp-server --to-cmd --cc-cmd --editor"
)
GIT_SAFE_SETTINGS = (
    "user.", "author.", "committer.", "color.", "advice.", "init.defaultbranch", "core.quotepath", "core.autocrlf", "core.eol",
    "core.abbrev", "core.filemode", "safe.directory", "log.", "commit.gpgsign", "tag.gpgsign", "push.default", "pull.rebase", "pull.ff", "merge.ff",
    "fetch.prune", "rebase.autostash", "rebase.autosquash", "diff.renames", "diff.algorithm", "diff.context", "gc.auto", "http.lowspeed", "http.postbuffer",
    "status.", "column.", "i18n.", "protocol.version", "merge.conflictstyle", "diff.mnemonicprefix", "grep.linenumber", "format.pretty",
)  # fmt: skip
