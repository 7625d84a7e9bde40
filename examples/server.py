"""The training server of server_before.py, with isolated calls: each job is a separate process under
`ebb run`, with a limit, and its memory is freed when it ends. Jobs can be cancelled.

    uvicorn --app-dir examples server:app
    EBB_ISOLATE=0 uvicorn --app-dir examples server:app     # as before, in the server's process

Only the function `run` and the code that cancels jobs differ from server_before.py.
"""

import asyncio
import contextlib
import itertools
import os
from typing import Any, AsyncIterator, Optional

import ebb
from fastapi import FastAPI, HTTPException, WebSocket
from pydantic import BaseModel
from server_training import train

LIMIT = os.environ.get("JOB_LIMIT", "1G")
TIMEOUT_S = 3600

numbers = itertools.count(1)


class Order(BaseModel):
    steps: int = 20
    mib_per_step: int = 8


class Job:
    def __init__(self) -> None:
        self.state = "running"
        self.news: "dict[str, Any]" = {}
        self.result: Any = None
        self.error: Optional[str] = None
        self.changed = asyncio.Event()
        self.task: "Optional[asyncio.Task[None]]" = None

    def tell(self, news: "dict[str, Any]") -> None:
        self.news = news
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self, state: str, result: Any = None, error: Optional[str] = None) -> None:
        self.state, self.result, self.error = state, result, error
        self.tell(self.news)

    def facts(self) -> "dict[str, Any]":
        return {"state": self.state, "result": self.result, "error": self.error}


jobs: "dict[int, Job]" = {}


async def run(job: Job, order: Order) -> None:
    try:
        job.end("done", await ebb.isolate_async(
            train, order.steps, order.mib_per_step,
            limit=LIMIT, timeout=TIMEOUT_S, on_progress=job.tell))
    except asyncio.CancelledError:
        job.end("cancelled")
    except Exception as error:
        job.end("failed", error=f"{type(error).__name__}: {error}")


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    running = [job.task for job in jobs.values() if job.task and not job.task.done()]
    for task in running:
        task.cancel()
    await asyncio.gather(*running)


app = FastAPI(lifespan=lifespan)


def find(number: int) -> Job:
    if number not in jobs:
        raise HTTPException(404, f"there is no job {number}")
    return jobs[number]


@app.post("/jobs")
async def create(order: Order) -> "dict[str, int]":
    number = next(numbers)
    jobs[number] = job = Job()
    job.task = asyncio.create_task(run(job, order))
    return {"id": number}


@app.get("/jobs/{number}")
async def show(number: int) -> "dict[str, Any]":
    return find(number).facts()


@app.delete("/jobs/{number}")
async def cancel(number: int) -> "dict[str, Any]":
    """Responds only once the job's process has exited."""
    job = find(number)
    if job.task and not job.task.done():
        job.task.cancel()
        await asyncio.wait([job.task])
    return job.facts()


@app.websocket("/jobs/{number}/progress")
async def progress(socket: WebSocket, number: int) -> None:
    """Sends progress while the job runs, and finally the result. A slow viewer receives only the newest progress."""
    await socket.accept()
    job = find(number)
    while job.state == "running":
        changed = job.changed
        if job.news:
            await socket.send_json(job.news)
        await changed.wait()
    await socket.send_json({"kind": "end", **job.facts()})
    await socket.close()


@app.get("/memory")
async def memory() -> "dict[str, int]":
    with open("/proc/self/statm") as file:
        return {"rss_bytes": int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")}
