"""Direct, buffered and mapped access to one file, mixed; every read is compared with a model.

Prints what each step came to, so that two file systems can be compared. Unaligned direct access may
be refused or work, by file system; what it may not do is to return or leave other bytes.
"""
import errno, hashlib, mmap, os, random, sys

BLOCK = 4096
random.seed(7)
model = bytearray()
path = 'file'
direct = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
plain = os.open(path, os.O_RDWR)
appending = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_DIRECT)
aligned = mmap.mmap(-1, 64 * BLOCK)


def put(offset, data):
    if len(model) < offset + len(data):
        model.extend(bytes(offset + len(data) - len(model)))
    model[offset:offset + len(data)] = data


def fill(length):
    data = random.randbytes(length)
    aligned[:length] = data
    return memoryview(aligned)[:length], data


def expect(what, found, offset, length):
    wanted = bytes(model[offset:offset + length])
    if found != wanted:
        at = next((i for i, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
        sys.exit(f'{what} of {length} at {offset}: {len(found)} bytes for {len(wanted)}, differ at {at}')


def unaligned(action, otherwise):
    try:
        return action()
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return otherwise()


for step in range(1500):
    kind = random.randrange(12)
    block = random.randrange(0, 80) * BLOCK
    length = random.randrange(1, 17) * BLOCK
    odd = random.randrange(0, 300_000)
    odd_length = random.randrange(1, 9000)
    if kind in (0, 1):
        buffer, data = fill(length)
        assert os.pwrite(direct, buffer, block) == length
        put(block, data)
    elif kind == 2:
        buffer, data = fill(odd_length)
        count = unaligned(lambda: os.pwrite(direct, buffer, odd), lambda: os.pwrite(plain, buffer, odd))
        assert count == odd_length, count
        put(odd, data)
    elif kind in (3, 4):
        buffer = memoryview(aligned)[:length]
        count = os.preadv(direct, [buffer], block)
        expect('direct read', bytes(buffer[:count]), block, length)
    elif kind == 5:
        buffer = memoryview(aligned)[:odd_length]
        count = unaligned(lambda: os.preadv(direct, [buffer], odd), lambda: os.preadv(plain, [buffer], odd))
        expect('unaligned direct read', bytes(buffer[:count]), odd, odd_length)
    elif kind == 6:
        data = random.randbytes(odd_length)
        os.pwrite(plain, data, odd)
        put(odd, data)
    elif kind == 7:
        expect('buffered read', os.pread(plain, odd_length, odd), odd, odd_length)
    elif kind == 8 and model:
        with mmap.mmap(plain, len(model)) as view:
            at = random.randrange(len(model))
            count = min(odd_length, len(model) - at)
            expect('mapped read', bytes(view[at:at + count]), at, count)
            data = random.randbytes(count)
            view[at:at + count] = data
            put(at, data)
            if step % 2:
                view.flush()
    elif kind == 9:
        size = random.randrange(0, 350_000)
        os.ftruncate(plain, size)
        del model[size:]
        model.extend(bytes(size - len(model)))
    elif kind == 10:
        # Direct, at the end, which must be at the end of a block for this.
        size = -(-len(model) // BLOCK) * BLOCK
        os.ftruncate(direct, size)
        model.extend(bytes(size - len(model)))
        if size < 400_000:
            buffer, data = fill(BLOCK)
            assert os.write(appending, buffer) == BLOCK
            put(size, data)
    elif kind == 11:
        os.fsync(direct if step % 2 else plain)
    assert os.fstat(direct).st_size == len(model), (step, kind, os.fstat(direct).st_size, len(model))

expect('buffered read of all', os.pread(plain, 1 << 20, 0), 0, 1 << 20)
for bad in (direct,):
    buffer = memoryview(aligned)[:BLOCK]
    past = -(-len(model) // BLOCK) * BLOCK + BLOCK
    print('read past the end', os.preadv(bad, [buffer], past))
print(len(model), hashlib.sha256(model).hexdigest())
