"""Writes tests/golden/data/arrays: NumPy's and safetensors' own files. Element (i, j, k) is 100 i + 10 j + k."""

import pathlib

import numpy as np
from safetensors.numpy import save_file

folder = pathlib.Path(__file__).resolve().parent / "data" / "arrays"
folder.mkdir(parents=True, exist_ok=True)

i, j, k = np.indices((5, 2, 3))
values = 100 * i + 10 * j + k
labels = np.arange(5) * 100

for code in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16"):
    array = (values % 100 if code in ("i1", "u1") else values).astype(code)
    if code.startswith("c"):
        array = array - 1j * array
    np.save(folder / f"little_{code}.npy", array.astype("<" + code))
    np.save(folder / f"big_{code}.npy", array.astype(">" + code))
    np.save(folder / f"fortran_{code}.npy", np.asfortranarray(array))
np.save(folder / "bool.npy", values % 2 == 1)
np.save(folder / "labels.npy", labels.astype("i8"))
np.save(folder / "big_fortran.npy", np.asfortranarray(values.astype(">f4")))
np.save(folder / "scalar.npy", np.float32(1.5))
np.save(folder / "objects.npy", np.array([None, 1], dtype=object), allow_pickle=True)
np.save(folder / "structures.npy", np.zeros(2, dtype=[("a", "<i4"), ("b", "<f4")]))
for version in ((2, 0), (3, 0)):
    with open(folder / f"version{version[0]}.npy", "wb") as file:
        np.lib.format.write_array(file, values.astype("f4"), version)
arrays = {"x": values.astype("f4"), "y": labels.astype("i8"), "nested.w": np.asfortranarray(values.astype(">i2"))}
np.savez(folder / "stored.npz", **arrays, empty=np.zeros((0, 2)), objects=np.array([None], dtype=object))
np.savez_compressed(folder / "deflated.npz", **arrays)
save_file(
    {"x": values.astype("f4"), "y": labels.astype("i8"), "nested.w": np.ascontiguousarray(values.astype("i2")),
     "scalar": np.array(1.5, dtype="f4"), "short": labels[:4]},
    folder / "arrays.safetensors",
)  # fmt: skip
