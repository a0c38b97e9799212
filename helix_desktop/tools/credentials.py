"""Files of the user's home that open doors elsewhere, as names from the home. What is missing here can be read by commands."""

from __future__ import annotations

# Shown to a command only when it may use the network anyway.
KEYS = tuple(
    """
    .ssh .gnupg .aws .azure .config/gcloud .config/gh .config/glab-cli .config/hub .kube .docker .config/containers
    .netrc _netrc .npmrc .yarnrc .yarnrc.yml .pypirc .config/pip .pip .config/uv .config/pypoetry/auth.toml
    .cargo/credentials .cargo/credentials.toml .gem/credentials .composer/auth.json .config/composer
    .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties .nuget/NuGet .git-credentials
    .config/git/credentials .vault-token .terraform.d/credentials.tfrc.json .terraformrc .pulumi/credentials.json
    .config/doctl .config/hcloud .config/heroku .config/netlify .config/configstore .config/op .config/sops
    .config/rclone .config/flyctl .fly .oci .bluemix .ibmcloud .aliyun .tsh .config/tsh .databrickscfg .snowsql
    .pgpass .my.cnf .mylogin.cnf .mongorc.js .dbshell .s3cfg .boto .databricks .huggingface/token
    .cache/huggingface/token .config/huggingface .kaggle .config/kaggle .jupyter
    .ipython/profile_default/history.sqlite .circleci .travis .config/github-copilot .codex/auth.json
    .claude/.credentials.json .claude.json .gemini/oauth_creds.json .gemini .anthropic .openai .config/anthropic
    .config/openai .config/io.datasette.llm .aider.conf.yml .continue .cursor .minikube .helm .config/helm
    .config/argocd .config/k9s .putty .config/FileZilla .config/filezilla .config/remmina .local/share/remmina
    .cifs.credentials .smbcredentials .msmtprc .config/msmtp .fetchmailrc .mutt .config/neomutt .offlineimaprc
    .mbsyncrc .config/himalaya .irssi .config/weechat .wgetrc .curlrc .config/age .age .config/cosign .sigstore
    .secrets
    """.strip().split()
)
# Never shown: what the desktop, browsers and password stores keep, and what was typed at other times.
RINGS = tuple(
    """
    .Xauthority .ICEauthority .local/share/keyrings .local/share/kwalletd .local/share/kwalletd6 .password-store
    .local/share/password-store .gnome2/keyrings .config/keepassxc .cache/keepassxc .config/KeePass
    .config/Bitwarden .config/1Password .config/Proton .lastpass .config/lastpass .config/Element .config/Signal
    .config/Slack .config/discord .config/teams .thunderbird .mozilla .config/google-chrome
    .config/google-chrome-beta .config/chromium .config/BraveSoftware .config/microsoft-edge .config/vivaldi
    .config/opera .librewolf .zen .var/app .bash_history .zsh_history .histfile .local/share/fish/fish_history
    .config/fish/fish_history .sh_history .ksh_history .python_history .node_repl_history .psql_history
    .mysql_history .sqlite_history .rediscli_history .irb_history .lesshst .viminfo .local/state/nvim/shada
    .wget-hsts .zsh_sessions .bash_sessions .config/monero .bitcoin .ethereum .electrum .config/solana
    .config/Exodus .config/Ledger .config/evolution .local/share/evolution .local/share/TelegramDesktop .purple .pki
    .config/dconf/user
    """.strip().split()
)
