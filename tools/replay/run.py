"""One replay from start to end: looks at the target, sends, waits for the answers, and says what came of it.

Opens and closes the Kafka clients and the answers' process; `outgoing` decides what is sent, `send` when, `outcome`
judges.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tools.dead.read import make_reader
from tools.recording.about import About
from tools.recording.plan import plan as counted
from tools.recording.read import Recording
from tools.recording.selection import Selection
from tools.replay.ahead import ahead, short_pauses
from tools.replay.answers import Wanted
from tools.replay.answers_process import AnswersProcess
from tools.replay.bookmark import Bookmark, BookmarkFile, Job, Marker, arrived
from tools.replay.keeper import Keeper
from tools.replay.outcome import Outcome
from tools.replay.outgoing import Done, Outgoing, Places, name_of, require_partitions
from tools.replay.pieces import PiecesProcess
from tools.replay.send import LOOK_EVERY_S, Sender
from tools.replay.target import CLIENT_ID, LiveFleet, Target, look, refusal
from topics.errors import FleetError
from topics.kafka import make_producer, started
from topics.names import LANES, FleetNames
from topics.settings import FleetSettings

LEAD_S: Final = 0.5
"""Between the last preparation and the first state: what is read ahead is there by then."""
CLOSE_S: Final = 5.0

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""


async def begin(
    settings: FleetSettings, job: Job, recording: Recording, bookmark: Path, *, yes: bool, progress: Progress
) -> Outcome:
    """A new replay. Raises `LiveFleet`, `FleetError` before anything is sent; what happens later is in the outcome."""
    async with started(make_reader(settings.kafka), settings.kafka) as reader:
        target = await look(settings, reader)
        why = refusal(target, recording.about.fleet, recording.about.cluster_id)
        if why is not None and not yes:
            raise LiveFleet(why)
        _require_places(recording, settings, job, target)
        topics = settings.names.state_topics()
        offsets = {place: end for place, end in target.ends.items() if place[0] in topics}
        mark = Bookmark(replace(job, cluster=target.cluster), target.ends, offsets)
        file = BookmarkFile.open(bookmark, new=True)
        with contextlib.closing(file):
            file.write(mark)
            return await _run(settings, recording, target, file, mark, Done(), progress)


async def resume(
    settings: FleetSettings, file: BookmarkFile, mark: Bookmark, recording: Recording, progress: Progress
) -> Outcome:
    """Go on with a replay that was cut off: what arrived is not sent again."""
    async with started(make_reader(settings.kafka), settings.kafka) as reader:
        target = await look(settings, reader)
        if (target.fleet, target.cluster) != (mark.job.fleet, mark.job.cluster):
            raise FleetError(
                f"the replay of {file.path} goes to fleet {mark.job.fleet} on cluster {mark.job.cluster}, found fleet "
                f"{target.fleet} on cluster {target.cluster}: set --fleet and --bootstrap-servers as before"
            )
        done = await arrived(reader, mark)
        return await _run(settings, recording, target, file, mark, done, progress)


async def look_at(settings: FleetSettings) -> Target:
    """What a replay would find at the target."""
    async with started(make_reader(settings.kafka), settings.kafka) as reader:
        return await look(settings, reader)


def names_of(recording: Recording, job: Job, numbers: Collection[int]) -> dict[int, str]:
    """What people call the states with these numbers; reads the recording again."""
    wanted, found, number = frozenset(numbers), dict[int, str](), 0
    for _ in range(job.loops):
        for records in recording.records(selection_of(job)) if len(found) < len(wanted) else ():
            for record in records:
                for copy in range(job.copies):
                    if number in wanted:
                        found[number] = name_of(record) + (f", copy {copy}" if copy else "")
                    number += 1
    return found


def topics_of(recording: Recording, settings: FleetSettings) -> dict[str, str]:
    """Recorded topic of a lane → the target's."""
    names = FleetNames(recording.about.fleet)
    return {names.states(lane): settings.names.states(lane) for lane in LANES}


def selection_of(job: Job) -> Selection:
    """Which records of the recording are sent."""
    return Selection(
        kinds=("states",),
        lanes=job.lanes,
        agents=job.agents,
        since_us=job.since_us,
        until_us=job.until_us,
        sample=job.sample,
    )


def _require_places(recording: Recording, settings: FleetSettings, job: Job, target: Target) -> None:
    topics = topics_of(recording, settings)
    if not job.rekey:
        require_partitions([place for place in recording.counts if place[0] in topics], topics, target.partitions)


async def _run(
    settings: FleetSettings,
    recording: Recording,
    target: Target,
    file: BookmarkFile,
    mark: Bookmark,
    done: Done,
    progress: Progress,
) -> Outcome:
    job = mark.job
    total = counted(recording, selection_of(job)).total * job.copies * job.loops
    places = Places(topics_of(recording, settings), target.partitions, rekey=job.rekey)
    outgoing = Outgoing(
        bytes.fromhex(job.run),
        places,
        job.speed,
        job.loops,
        job.copies,
        settings.topics.max_message_bytes,
        done,
    )
    producer = make_producer(settings.kafka, client_id=CLIENT_ID)
    async with (
        _reading(job, outgoing) as reading,
        _answers(settings, mark) as answers,
        started(producer, settings.kafka, stop_within_s=CLOSE_S),
    ):
        for topic in settings.names.state_topics():  # else the first states would wait for the topics' leaders
            await producer.partitions_for(topic)
        sender = Sender(producer, places.all)
        outcome = Outcome(job)
        keeper = Keeper(sender, file, Marker(mark, done.also), answers, lambda sent: progress(done.count + sent, total))
        with _stop_on_signals(sender, outcome), short_pauses():
            await _send(sender, reading, keeper, outcome)
            outcome.take(sender, reading.unsendable, done.count)
            if answers is not None:
                total = sender.next_number if reading.total is None else reading.total
                answers.sent(total, [one.number for one in reading.unsendable if one.number < total])
                await _wait_for_answers(answers, outcome, progress)
    if outcome.is_complete:
        file.remove()
    else:
        outcome.resume_with = str(file.path)
    return outcome


async def _send(sender: Sender, reading: PiecesProcess, keeper: Keeper, outcome: Outcome) -> None:
    sender.begin_s = time.monotonic() + LEAD_S
    begin_us = round((time.time() + LEAD_S) * 1e6)
    async with asyncio.TaskGroup() as group, contextlib.aclosing(ahead(reading.pieces(begin_us))) as made:
        keeping = group.create_task(keeper.keep())
        try:
            await sender.run(made)
        except* FleetError as faults:  # the brokers, or the recording itself
            outcome.failure = str(faults.exceptions[0])
        keeping.cancel()
    keeper.note()
    keeper.note()  # the first one may still go with older offsets


@contextlib.asynccontextmanager
async def _reading(job: Job, outgoing: Outgoing) -> AsyncIterator[PiecesProcess]:
    """The process that reads the recording, ready."""
    reading = PiecesProcess(Path(job.recording), selection_of(job), outgoing)
    try:
        await asyncio.to_thread(reading.wait_ready)
        yield reading
    finally:
        await asyncio.shield(asyncio.to_thread(reading.close))


@contextlib.asynccontextmanager
async def _answers(settings: FleetSettings, mark: Bookmark) -> AsyncIterator[AnswersProcess | None]:
    """The process that records states and answers; None where nobody wants them."""
    if mark.job.out is None:
        yield None
        return
    wanted = Wanted(
        settings,
        bytes.fromhex(mark.job.run),
        mark.begin,
        Path(mark.job.out),
        _about(settings, mark),
        mark.job.answers_within_s,
    )
    answers = AnswersProcess(wanted)
    try:
        await answers.ready()
        yield answers
    finally:
        await asyncio.shield(answers.close())


async def _wait_for_answers(answers: AnswersProcess, outcome: Outcome, progress: Progress) -> None:
    while answers.found is None:
        if outcome.interrupted or outcome.failure is not None:
            answers.stop()
        await asyncio.sleep(LOOK_EVERY_S / 5)
        answers.listen()
        progress(answers.answered, outcome.sent)
    outcome.found = answers.found


@contextlib.contextmanager
def _stop_on_signals(sender: Sender, outcome: Outcome) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops cleanly; the next one is the shell's usual."""
    loop = asyncio.get_running_loop()
    both = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        outcome.interrupted = True
        sender.stop()
        for one in both:
            loop.remove_signal_handler(one)

    for one in both:
        loop.add_signal_handler(one, stop)
    try:
        yield
    finally:
        for one in both:
            loop.remove_signal_handler(one)


def _about(settings: FleetSettings, mark: Bookmark) -> About:
    job = mark.job
    partitions = Counter(topic for topic, _ in mark.begin)
    facts = {"replay_of": job.recording, "run": job.run, "speed": f"{job.speed or 'max'}", "agents": f"x{job.copies}"}
    filters = f"states and answers of replay {job.run} only"
    return About(
        settings.names.fleet, job.cluster, partitions, filters, facts, {"decision-fleet": version("decision-fleet")}
    )
