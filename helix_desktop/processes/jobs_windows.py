"""Puts a command into a Windows job object, which ends everything the command started,
even if we end first.
"""

import ctypes
import sys

if sys.platform == "win32":
    from ctypes import wintypes

    _ALL_ACCESS = 0x1F0FFF
    _EXTENDED_LIMITS = 9
    _KILL_ON_CLOSE = 0x2000

    class _BasicLimits(ctypes.Structure):
        _fields_ = (
            ("PerProcessUserTimeLimit", wintypes.LARGE_INTEGER),
            ("PerJobUserTimeLimit", wintypes.LARGE_INTEGER),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
        )

    class _ExtendedLimits(ctypes.Structure):
        _fields_ = (
            ("BasicLimitInformation", _BasicLimits),
            ("IoInfo", ctypes.c_ulonglong * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel.CreateJobObjectW.restype = wintypes.HANDLE
    _kernel.CreateJobObjectW.argtypes = [wintypes.LPVOID, wintypes.LPCWSTR]
    _kernel.SetInformationJobObject.argtypes = [
        wintypes.HANDLE,
        ctypes.c_int,
        wintypes.LPVOID,
        wintypes.DWORD,
    ]
    _kernel.OpenProcess.restype = wintypes.HANDLE
    _kernel.OpenProcess.argtypes = [wintypes.DWORD, wintypes.BOOL, wintypes.DWORD]
    _kernel.AssignProcessToJobObject.argtypes = [wintypes.HANDLE, wintypes.HANDLE]
    _kernel.CloseHandle.argtypes = [wintypes.HANDLE]

    def create_job_for_process(pid: int) -> int:
        """Put a process into a new job, and return the job's handle.

        What the process starts is in the job, too. `close_job` kills everything in it, and so
        does the end of this program.
        """
        job = _require_handle(_kernel.CreateJobObjectW(None, None))
        limits = _ExtendedLimits()
        limits.BasicLimitInformation.LimitFlags = _KILL_ON_CLOSE
        _require_handle(
            _kernel.SetInformationJobObject(
                job, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
            )
        )
        process = _require_handle(_kernel.OpenProcess(_ALL_ACCESS, False, pid))
        try:
            _require_handle(_kernel.AssignProcessToJobObject(job, process))
        finally:
            _kernel.CloseHandle(process)
        return job

    def close_job(job: int) -> None:
        _kernel.CloseHandle(job)

    def _require_handle(result: int) -> int:
        if not result:
            raise ctypes.WinError(ctypes.get_last_error())
        return result
