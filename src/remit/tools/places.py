"""Places that matter to a sandbox: where people keep secrets, and where others find programs and settings to obey."""

from __future__ import annotations

# fmt: off
SECRETS = (
    ".ssh", ".gnupg", ".netrc", "_netrc", ".password-store", ".local/share/keyrings", "Library/Keychains",
    ".aws", ".azure", ".oci", ".boto", ".s3cfg", ".kube", ".docker", ".fly", ".databrickscfg", ".vault-token",
    ".config/gcloud", ".config/doctl", ".config/rclone", ".config/heroku", ".config/containers/auth.json",
    ".config/helm/registry", ".terraform.d", ".terraformrc",
    ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli",
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials",
    ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties",
    ".pgpass", ".my.cnf", ".mylogin.cnf",
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
    ".config/microsoft-edge", ".config/Signal", ".config/Slack", ".config/1Password", ".config/op", ".config/Bitwarden",
    ".bash_history", ".zsh_history", ".python_history", ".psql_history", ".node_repl_history",
    ".claude.json", ".claude/.credentials.json", ".codex/auth.json", ".config/remit", ".local/state/remit",
)
"""In a home: nobody in a sandbox sees these."""

SYSTEM_SECRETS = (
    "/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
)

PROTECTED = (
    ".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/modules", ".git/worktrees",
    ".remit", ".claude", ".agents", ".opencode", ".qwen", ".codex", ".gemini", ".cursor", "remit.toml", ".mcp.json",
    ".vscode", ".idea", ".envrc",
)
"""In a workspace, for reading only: programs outside would run, or obey, what is planted there."""

PROTECTED_HOME = (
    ".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv", ".zprofile", ".inputrc", ".vimrc",
    ".tmux.conf", ".gitconfig", ".config/git", ".config/fish", ".config/autostart", ".config/systemd", ".local/bin",
)
"""The same for a workspace that has a home in it."""
# fmt: on
