"""Puts a folder on the user's PATH on Windows, or takes it off: `user_path.py
add|remove FOLDER`.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import ctypes
    import winreg

    def main() -> int:
        verb, folder = sys.argv[1:]
        with winreg.OpenKey(
            winreg.HKEY_CURRENT_USER, "Environment", 0, winreg.KEY_ALL_ACCESS
        ) as key:
            try:
                before, kind = winreg.QueryValueEx(key, "Path")
            except FileNotFoundError:
                before, kind = "", winreg.REG_EXPAND_SZ
            parts = [part for part in before.split(";") if part and part.lower() != folder.lower()]
            if verb == "add":
                parts.append(folder)
            winreg.SetValueEx(key, "Path", 0, kind, ";".join(parts))
        everybody, changed, unless_hung = 0xFFFF, 0x1A, 2
        ctypes.windll.user32.SendMessageTimeoutW(
            everybody, changed, 0, "Environment", unless_hung, 2000, None
        )
        return 0

    if __name__ == "__main__":
        sys.exit(main())
