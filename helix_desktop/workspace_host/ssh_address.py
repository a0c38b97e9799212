"""The address of a folder on another computer. The window reads it before anything of the line
to that computer is loaded.
"""

import re
from urllib.parse import unquote, urlsplit

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass

_TARGET = re.compile(r"[A-Za-z0-9_][\w.@:%+-]*")


@dataclass(frozen=True, slots=True)
class SshAddress:
    """`target`: what `ssh` is told, such as user@machine or a name from the user's configuration.
    `folder`: there; empty if a workspace is named instead.
    """

    target: str
    port: int | None = None
    folder: str = ""

    @classmethod
    def from_text(cls, text: str) -> "SshAddress":
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise build_invalid_address_error(text) from None
        target = unquote(parts.netloc)
        if port is not None:
            target = target.removesuffix(f":{port}")
        if parts.scheme != "ssh" or not _TARGET.fullmatch(target) or parts.password is not None:
            raise build_invalid_address_error(text)
        folder = unquote(parts.path)
        if folder == "/":
            folder = ""
        # The path of an address begins with a slash. Behind it may be the home folder there.
        if folder.startswith("/~"):
            folder = folder[1:]
        return cls(target, port, folder)


def build_invalid_address_error(text: str) -> InvalidInput:
    return InvalidInput(
        f"{text!r} is not the address of a folder on another computer.",
        remedy="For example: ssh://user@machine/home/user/project, or ssh://machine/~/project.",
    )
