"""Writes schedules, and makes the resident run them, even after the next login."""

import asyncio

from helix_desktop.errors import ActionRefused
from helix_desktop.gateway import wrapped_agent
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident import login_start, resident_client, schedules


async def change_schedules(where: ProgramFolders, change: schedules.ScheduleChange) -> str:
    """Change the stored schedules. Return why the resident cannot start at login, or an
    empty string.
    """
    stored = await asyncio.to_thread(schedules.change_stored_schedules, where.data, change)
    command = wrapped_agent.command_of_this_program(where)
    why_not_at_login = ""
    try:
        if stored:
            login_start.enable_login_start(command)
        else:
            login_start.disable_unneeded_login_start(where)
    except ActionRefused as error:
        why_not_at_login = error.what
    if stored:
        await resident_client.ask_resident(where, "schedules", command=command)
    else:  # Without schedules, a resident need not be started for them.
        await resident_client.ask_resident(where, "schedules")
    return why_not_at_login
