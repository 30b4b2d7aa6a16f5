"""Where things live and how much of the machine is used; every value may be set by an environment variable `NUSCOPE_*`."""

from functools import cache
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "assets"
DEMO = ASSETS / "demo"


class Settings(BaseSettings):
    """The engine's settings."""

    model_config = SettingsConfigDict(env_prefix="NUSCOPE_")

    home: Path = Field(default=ROOT / ".nuscope", description="runs, uploads and the table of runs")
    data_folders: str = Field(default="", description="folders that the app may read data from, separated by ':'")
    slots: int = Field(default=1, ge=1, le=64, description="worker processes at a time")
    threads: int = Field(default=0, ge=0, description="threads a worker; 0: all cores")
    device: str = Field(default="auto", description="auto, cpu, or cuda:0 …")
    upload_limit: int = Field(default=4 * 2**30, gt=0, description="largest upload in bytes")
    memory_limit: int = Field(default=0, ge=0, description="bytes a run may plan for; 0: three quarters of the machine's")

    @property
    def runs(self) -> Path:
        """One folder a run."""
        return self.home / "runs"

    @property
    def uploads(self) -> Path:
        """What users brought, by content hash."""
        return self.home / "uploads"

    @property
    def table(self) -> Path:
        """SQLite table of runs."""
        return self.home / "runs.sqlite"


@cache
def settings() -> Settings:
    """The settings of this process; `settings.cache_clear()` after the environment changed."""
    return Settings()
