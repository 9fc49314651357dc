"""An event loop in a thread of its own: for what lives longer than a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any


class Background:
    """Runs coroutines elsewhere. Calls may come from any loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and block until it is done."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def call[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it here."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    @contextmanager
    def entered[T](self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Hold an asynchronous context there; one task enters and leaves it."""
        inside: asyncio.Future[T]
        leave = asyncio.Event()

        async def hold() -> None:
            try:
                async with context as value:
                    inside.set_result(value)
                    await leave.wait()
            except BaseException as error:
                if not inside.done():
                    inside.set_exception(error)
                    return
                raise

        async def enter() -> tuple[T, asyncio.Task[None]]:
            nonlocal inside
            inside = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(hold())
            return await inside, task

        async def exit_(task: asyncio.Task[None]) -> None:
            leave.set()
            await task

        value, task = self.run(enter())
        yield value
        self.run(exit_(task))


@contextmanager
def background() -> Iterator[Background]:
    """Yield a loop that runs until the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="background")
    thread.start()
    yield Background(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
