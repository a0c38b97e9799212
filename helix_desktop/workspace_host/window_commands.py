"""Commands of a host that only a window needs: what it shows of the workspace, the queue of
messages, models, permissions and the files that were changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from helix_desktop.engine import facts
from helix_desktop.engine.changes.folder_state import is_change_of_folder
from helix_desktop.engine.changes.turn_changes import UndoOutlook
from helix_desktop.engine.facts import Text, UserPart
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, InvalidInput
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workspace_host import host_interface
from helix_desktop.workspace_host.host_interface import (
    ChangedPath,
    CommandResult,
    CommandRunner,
    FileForPreview,
    HostCommand,
    LentKey,
    OfferedCommand,
    PartChange,
    QueueChange,
    WorkspaceDescription,
    message_fingerprint,
)

MOST_PATHS = 200
LARGEST_FILE = 16 << 20  # A file goes over the line whole.
DONE = CommandResult()


class WindowCommands:
    """Carries out these commands. `runners`: what runs each."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self.runners: Mapping[type[HostCommand], CommandRunner] = {
            host_interface.DescribeWorkspace: self._describe_workspace,
            host_interface.ChangeWaitingMessage: self._change_waiting_message,
            host_interface.EditAndResend: self._edit_and_resend,
            host_interface.SwitchToAnswer: self._switch_to_answer,
            host_interface.RetryModelNow: self._retry_model_now,
            host_interface.StopFold: self._stop_fold,
            host_interface.ChangePart: self._change_part,
            host_interface.ChooseLastingModel: self._choose_lasting_model,
            host_interface.ChoosePermissionMode: self._set_permission_mode,
            host_interface.AttachEntry: self._attach_entry,
            host_interface.CountSentTokens: self._count_sent_tokens,
            host_interface.CompletePaths: self._complete_paths,
            host_interface.ReadFile: self._read_file_for_client,
            host_interface.ListChangesAfter: self._list_changes_after,
        }

    # --- The workspace

    async def _describe_workspace(self, command: host_interface.DescribeWorkspace) -> CommandResult:
        bench = self._bench
        folders = [str(folder) for folder in bench.allowed_folders]
        modes = bench.describe_permission_modes()
        offered_commands: list[OfferedCommand] = []
        for item in bench.slash_commands.list_slash_commands(command.conversation):
            offered_commands.append(OfferedCommand(item.name, item.about))
        allowed_by_rules: list[tuple[str, tuple[str, ...]]] = []
        described_conversations = ["", *bench.list_rules_by_conversation()]
        allowed_uses = bench.list_uses_allowed_in(described_conversations)
        for conversation, uses in allowed_uses.items():
            allowed_by_rules.append((conversation, tuple(uses)))
        description = WorkspaceDescription(
            folders=tuple(folders),
            main_model=bench.main_model_name,
            policy=bench.policy_name,
            permission_mode=bench.permission_mode,
            everything_allowed_until=bench.everything_allowed_until,
            permission_modes=tuple(modes.items()),
            allowed_by_rules=tuple(allowed_by_rules),
            slash_commands=tuple(offered_commands),
            lent_keys=self._list_lent_keys(),
        )
        return CommandResult(description=description)

    def _list_lent_keys(self) -> tuple[LentKey, ...]:
        lent_keys: list[LentKey] = []
        for lender in self._bench.models.lent_providers.list_lenders_for_one_conversation():
            names = tuple(provider.name for provider in lender.providers)
            lent_keys.append(LentKey(lender.conversation, names))
        return tuple(lent_keys)

    async def _choose_lasting_model(
        self, command: host_interface.ChooseLastingModel
    ) -> CommandResult:
        if command.conversation:
            await self._bench.save_conversation_model(command.conversation, command.model)
        else:
            await self._bench.choose_model_for_role(command.model)
        return DONE

    async def _set_permission_mode(
        self, command: host_interface.ChoosePermissionMode
    ) -> CommandResult:
        if command.name not in self._bench.describe_permission_modes():
            raise InvalidInput(f"There is no permission mode {command.name!r}.")
        await self._bench.choose_permission_mode(command.name)
        return DONE

    async def _complete_paths(self, command: host_interface.CompletePaths) -> CommandResult:
        limit = min(max(command.limit, 0), MOST_PATHS)
        paths = await self._bench.complete_file_paths(command.letters, limit)
        return CommandResult(paths=tuple(paths))

    # --- Messages

    async def _change_waiting_message(
        self, command: host_interface.ChangeWaitingMessage
    ) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        queue = session.queue
        if not _is_same_waiting_message(queue, command):
            raise ActionRefused("This message does not wait any more.", remedy="Nothing was done.")
        match command.change:
            case QueueChange.TAKE_BACK:
                queue.take_back_queued(command.index)
            case QueueChange.MOVE:
                queue.move_message(command.index, command.new_index)
            case QueueChange.STEER:
                queue.set_steering(command.index, steer=True)
            case QueueChange.QUEUE:
                queue.set_steering(command.index, steer=False)
        return DONE

    async def _edit_and_resend(self, command: host_interface.EditAndResend) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        parts: tuple[UserPart, ...] = command.attachments
        if command.text.strip():
            parts = (Text(command.text),) + parts
        if not parts:
            raise InvalidInput("The message is empty.")
        await session.edit_and_resend(command.seq, parts, command_id=command.command_id)
        return DONE

    async def _count_sent_tokens(self, command: host_interface.CountSentTokens) -> CommandResult:
        parts: tuple[UserPart, ...] = command.attachments
        if command.text.strip():
            parts = (Text(command.text), *parts)
        tokens = await self._bench.count_sent_tokens(
            command.attachment, command.conversation, parts=parts, instead_of=command.instead_of
        )
        return CommandResult(attachments=(replace(command.attachment, tokens=tokens),))

    async def _switch_to_answer(self, command: host_interface.SwitchToAnswer) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        await session.switch_to_answer(command.seq)
        return DONE

    async def _retry_model_now(self, command: host_interface.RetryModelNow) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        session.turns.retry_immediately()
        return DONE

    # --- The context

    async def _stop_fold(self, command: host_interface.StopFold) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        session.folding.cancel_fold_in_work()
        return DONE

    async def _change_part(self, command: host_interface.ChangePart) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        ref: facts.Cover = facts.PartRef(command.seq, command.part)
        if command.last_seq:
            ref = facts.Span(command.seq, command.last_seq)
        match command.change:
            case PartChange.PIN:
                await session.context.pin_part(ref)
            case PartChange.UNPIN:
                await session.context.unpin_part(ref)
            case PartChange.EXCLUDE:
                await session.context.exclude_part(ref)
            case PartChange.INCLUDE:
                await session.context.include_part(ref)
        return DONE

    async def _attach_entry(self, command: host_interface.AttachEntry) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        try:
            digest = Digest.from_hex(command.digest)
        except ValueError as error:
            raise InvalidInput("This is not the digest of a stored content.") from error
        lines = None
        if command.first_line:
            lines = (command.first_line, command.last_line)
        attachment = await session.context.recall_as_attachment(digest, lines=lines)
        return CommandResult(attachments=(attachment,))

    # --- Files

    async def _read_file_for_client(self, command: host_interface.ReadFile) -> CommandResult:
        if command.conversation:  # It may work in a copy of the folders.
            await self._bench.open_session(command.conversation)
        file = await self._bench.read_file_for_preview(command.conversation, command.path)
        if len(file.content) > LARGEST_FILE or len(file.text) > LARGEST_FILE:
            raise InvalidInput(f"{file.shown_path} is too large to be shown from here.")
        read_file = FileForPreview(
            file.shown_path,
            str(file.full_path),
            file.kind.value,
            file.content,
            file.text,
            file.page_count,
        )
        return CommandResult(file=read_file)

    async def _list_changes_after(self, command: host_interface.ListChangesAfter) -> CommandResult:
        """Lists the files whose change UndoFileChanges would undo, and those that it would not."""
        await self._bench.open_session(command.conversation)
        changes = self._bench.file_changes_of(command.conversation)
        all_files = await changes.changes_after_fact(command.conversation, command.seq)
        files = [file for file in all_files if not is_change_of_folder(file.change)]
        conflicting_paths: set[str] = set()
        for planned in await changes.plan_undo(files):
            if planned.how is UndoOutlook.CONFLICT:
                conflicting_paths.add(planned.path)
        changed_paths: list[ChangedPath] = []
        for file in files:
            has_conflict = file.path_of_change in conflicting_paths
            changed_paths.append(ChangedPath(file.place, file.by, has_conflict))
        return CommandResult(changed=tuple(changed_paths))


def _is_same_waiting_message(
    queue: Sequence[QueuedMessage], command: host_interface.ChangeWaitingMessage
) -> bool:
    """Whether the message that the user saw at this place of the queue is still there."""
    is_there = 0 <= command.index < len(queue)
    if not is_there:
        return False
    message = queue[command.index]
    return message_fingerprint(message.parts) == command.fingerprint
