"""A C library returns a buffer for each record. The Python binding never frees the buffer, because no Python object
owns it; --fixed frees it. Calls of libc's malloc and memset through ctypes stand for the library."""
import ctypes
import kit, marks

opt = kit.options("--fixed")
torch = kit.torch_cpu()
import numpy as np

EPOCHS, STEPS = (3, 10) if opt.tiny else (3, 190)
RECORD = 700_000
ledger = kit.Ledger()
tell = marks.teller(opt.no_marks)

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free.restype = None
outstanding = 0


def read_record(i):
    """Returns the record as a pointer, as a C library would."""
    global outstanding
    p = libc.malloc(RECORD)
    libc.memset(p, i % 251 + 1, RECORD)
    outstanding += RECORD
    return p


def give_back(p):
    global outstanding
    libc.free(p)
    outstanding -= RECORD


def features(i):
    p = read_record(i)
    view = np.ctypeslib.as_array(ctypes.cast(p, ctypes.POINTER(ctypes.c_ubyte)), (RECORD,))
    x = torch.from_numpy(view[: 64 * 64].reshape(64, 64).astype(np.float32) / 255)
    if opt.twin:
        give_back(p)
    return x


def main():
    net = torch.nn.Sequential(torch.nn.Linear(64, 400), torch.nn.GELU(), torch.nn.Linear(400, 1))
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4)
    pace, step = kit.Pace(0.062, opt.tiny), 0
    for epoch in range(EPOCHS):
        for i in range(STEPS):
            loss = (net(features(i)) - 1).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            tell.step(step, steps_per_epoch=STEPS, max_steps=STEPS * EPOCHS)
            if step == 1 or step % STEPS == 0:
                ledger.note(step, outstanding)
            pace.tick()
    tell.mark("end", step=step)
    ledger.close(EPOCHS, STEPS, expected_per_step=0 if opt.twin else RECORD)


main()
