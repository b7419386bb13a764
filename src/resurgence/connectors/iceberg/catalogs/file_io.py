"""The metadata files of Iceberg tables, through our own object stores.

So a warehouse has the credentials, deadlines and retries of the settings `storage.*`, on every kind
of store. Credentials that a REST catalog vends with a table take precedence.

Only pyiceberg imports this module, by the name in `FILE_IO`.
"""

from __future__ import annotations

import io

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from resurgence.connectors.iceberg.catalogs.store_location import located_store
from resurgence.errors import ObjectMissing
from resurgence.storage.object_store import ObjectStore


class StoreFileIO(FileIO):
    """pyiceberg's access to files."""

    def new_input(self, location: str) -> InputFile:
        return StoredInput(location, *located_store(location, self.properties))

    def new_output(self, location: str) -> OutputFile:
        return StoredOutput(location, *located_store(location, self.properties))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        place = location if isinstance(location, str) else location.location
        store, path = located_store(place, self.properties)
        store.delete([path])


class StoredInput(InputFile):
    """An object to read as a whole: metadata files are small."""

    def __init__(self, location: str, store: ObjectStore, path: str) -> None:
        super().__init__(location)
        self._store, self._path = store, path

    def __len__(self) -> int:
        size = self._store.size(self._path)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._store.size(self._path) is not None

    def open(self, seekable: bool = True) -> InputStream:
        try:
            return io.BytesIO(self._store.read(self._path))
        except ObjectMissing as error:
            raise FileNotFoundError(self.location) from error


class StoredOutput(OutputFile):
    """An object to write."""

    def __init__(self, location: str, store: ObjectStore, path: str) -> None:
        super().__init__(location)
        self._store, self._path = store, path

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self._store.size(self._path) is not None

    def to_input_file(self) -> InputFile:
        return StoredInput(self.location, self._store, self._path)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Upload(self._store, self._path, self.location, overwrite=overwrite)


class _Upload(io.BytesIO):
    """Creates the object when it is closed."""

    def __init__(self, store: ObjectStore, path: str, location: str, *, overwrite: bool) -> None:
        super().__init__()
        self._store, self._path, self._location = store, path, location
        self._overwrite = overwrite

    def close(self) -> None:
        if self.closed:
            return
        data = self.getvalue()
        super().close()
        if self._overwrite:
            self._store.replace(self._path, data)
        elif not self._store.create(self._path, data) and self._store.read(self._path) != data:
            raise FileExistsError(self._location)
