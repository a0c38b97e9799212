"""Actions that extensions add to the command palette of the window."""

import asyncio

from helix_desktop.extensions.extension_interfaces import ActionPlace, ExtensionAction
from helix_desktop.extensions.limited_calls import ExtensionFailed, printable_text
from helix_desktop.extensions.running_extension import RunningExtension
from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class AddedAction:
    extension: RunningExtension
    declared: ExtensionAction

    @property
    def title(self) -> str:
        return self.declared.title

    @property
    def title_of_extension(self) -> str:
        return self.extension.declared.title

    async def run_at_place(self, place: ActionPlace) -> str:
        """Return what the user is told. Raises ExtensionFailed if the action failed."""
        return await asyncio.to_thread(self._run_with_limit, place)

    def _run_with_limit(self, place: ActionPlace) -> str:
        try:
            return self.extension.run_and_count(
                lambda: _check_returned_text(self.declared.run(place)),
                self.declared.limit_seconds,
                f"the action {self.title}",
            )
        except ExtensionFailed as error:
            name = self.extension.installed.name
            raise ExtensionFailed(f"The extension {name} failed: {error.what}.") from error


_added: list[AddedAction] = []


def add_action(action: AddedAction) -> None:
    _added.append(action)


def remove_action(action: AddedAction) -> None:
    if action in _added:
        _added.remove(action)


def list_added_actions() -> list[AddedAction]:
    return [action for action in _added if not action.extension.stopped_because]


def _check_returned_text(text: object) -> str:
    if text is None:
        return ""
    if type(text) is not str:
        raise ExtensionFailed(f"it returned {type(text).__name__} instead of a text")
    return printable_text(text)
