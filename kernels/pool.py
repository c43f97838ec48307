"""Processes that compile, and what becomes of those that crash or hang."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from typing import TypeVar

T = TypeVar("T")


def process_pool(jobs: int | None) -> ProcessPoolExecutor:
    """Processes that end when this one does; one for each core if ``jobs`` is None."""
    # Spawned, not forked: TVM and LLVM have threads of their own.
    return ProcessPoolExecutor(
        jobs or len(os.sched_getaffinity(0)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_end_with_parent,
    )


def _end_with_parent() -> None:
    """Let this process end when its parent does, also if that is killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Workers(AbstractContextManager["Workers"]):
    """Calls a function of many items in processes; one that fails, crashes or hangs is told apart.

    Parameters
    ----------
    jobs
        Processes; all cores if None.
    deadline
        Seconds that nothing may end within before the calls under way are given up.
    """

    def __init__(self, jobs: int | None = None, deadline: float = 120.0) -> None:
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._deadline = deadline
        self._pool: ProcessPoolExecutor | None = None

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(
        self, function: Callable[[T], object], items: Sequence[T]
    ) -> Iterator[tuple[T, BaseException | None]]:
        """Each item once its call is done, with what the call raised.

        A call that ended its process has raised ``BrokenProcessPool``, one that did not end in
        time ``TimeoutError``.
        """
        waiting = list(reversed(items))
        suspects: list[T] = []
        running: dict[Future[object], T] = {}
        try:
            while waiting or suspects or running:
                # Whose process ended is not known of several: each is tried again alone.
                alone = bool(suspects)
                most = 1 if alone else 2 * self._jobs
                source = suspects if alone else waiting
                while source and len(running) < most:
                    pool = self._started(getattr(function, "func", function).__module__)
                    try:
                        future = pool.submit(function, source[-1])
                    except BrokenProcessPool:
                        # A process ended since the last look at it. What runs says so below.
                        if running:
                            break
                        self._end()
                        continue
                    running[future] = source.pop()
                done, _ = wait(running, self._deadline, return_when=FIRST_COMPLETED)
                broken: BaseException | None = None if done else TimeoutError()
                for future in done:
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        broken = error
                        continue
                    yield running.pop(future), error
                if broken is not None:
                    self._end()
                    if len(running) == 1:
                        yield next(iter(running.values())), broken
                    else:
                        suspects += running.values()
                    running.clear()
        finally:
            # Whoever has seen enough must not be left beside compilers that run on.
            if running:
                self._end()

    def _started(self, module: str) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = process_pool(self._jobs)
            # Importing a compiler takes seconds, which must not count as time of a call.
            self._pool.submit(_import, module).result()
        return self._pool

    def _end(self) -> None:
        if self._pool is None:
            return
        for process in list(self._pool._processes.values()):
            process.kill()
        self._pool.shutdown(cancel_futures=True)
        self._pool = None


def _import(module: str) -> None:
    importlib.import_module(module)
