"""A service that reads digits: POST /predict with the rows of an 8x8 image."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from fastapi import FastAPI, HTTPException

import aotc


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Hold the model for as long as the service runs."""
    with aotc.load("build/tutorial/int8.aotc") as app.state.model:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/predict")
def predict(image: list[list[float]]) -> dict[str, int]:
    """The digit that an image shows."""
    try:
        pixels = np.array(image, np.float32)[None, None]
        logits = app.state.model.run({"image": pixels})["logits"]
    except (ValueError, aotc.AotcError) as error:
        raise HTTPException(422, str(error)) from error
    return {"digit": int(logits.argmax())}
