"""Beside the sender, twice a second: moves the bookmark, shows progress, ends a run whose answers nobody records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tools.replay.answers_process import AnswersProcess
from tools.replay.bookmark import BookmarkFile, Marker
from tools.replay.send import LOOK_EVERY_S, Sender


class Keeper:
    """`keep` runs until it is cancelled; `note` once more at the end."""

    def __init__(
        self,
        sender: Sender,
        file: BookmarkFile,
        marker: Marker,
        answers: AnswersProcess | None,
        show: Callable[[int], None],
    ) -> None:
        self._sender = sender
        self._file = file
        self._marker = marker
        self._answers = answers
        self._show = show

    async def keep(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.note()
            self._show(self._sender.acknowledged)
            if self._answers is not None:
                self._answers.listen()
                if self._answers.found is not None:
                    self._sender.stop()

    def note(self) -> None:
        """Write down how far it is."""
        sender = self._sender
        self._file.write(self._marker.move(sender.done_below, sender.next_number, sender.offsets()))
