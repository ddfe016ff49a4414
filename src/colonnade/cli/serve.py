"""`colonnade serve`: predictions over HTTP as they are asked for, of a finished run or as one party of a network."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import PartyModel
from colonnade.cli.output import console, interrupted, tell
from colonnade.cli.party_log import last_words, set_up_logging
from colonnade.errors import SettingsError

if TYPE_CHECKING:
    from colonnade.launch.serving import Serving


def serve(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FEDERATION.toml",
            help="A finished run's directory; with --party, what all parties share.",
            show_default=False,
        ),
    ],
    party: Annotated[
        Path | None,
        typer.Option(
            "--party",
            metavar="PARTY.toml",
            help="This party's own file: the label party has the endpoint, feature parties answer it.",
            show_default=False,
        ),
    ] = None,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the endpoint listens. The label party's.")
    ] = "127.0.0.1:8080",
    keys: Annotated[
        Path | None, typer.Option(help="The file of API keys; it holds hashes.", show_default=False)
    ] = None,
    add_key: Annotated[
        str,
        typer.Option(metavar="NAME", help="Make a key, add its hash to --keys, show it once, end.", show_default=False),
    ] = "",
    no_keys: Annotated[bool, typer.Option("--no-keys", help="Answer whoever asks.")] = False,
    tls: Annotated[bool, typer.Option("--tls", help="HTTPS with the certificate of --party.")] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="HTTPS with this certificate.", show_default=False)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.", show_default=False)] = None,
    most_ids: Annotated[int, typer.Option(help="Rows of one request.", min=1)] = 1000,
    party_seconds: Annotated[
        float,
        typer.Option(help="How long a feature party is waited for; then the answer is given without it.", min=0.001),
    ] = 0.5,
    seconds: Annotated[float, typer.Option(help="The longest that an answer may take.", min=0.01)] = 5.0,
    cache_seconds: Annotated[
        float,
        typer.Option(
            help="Use what a party answered for a row again, up to this age; 0: never. The label party's.", min=0
        ),
    ] = 0.0,
    shadow: Annotated[
        Path | None,
        typer.Option(
            help="Another run directory or model's folder, scored beside the one that answers: how far they differ is "
            "a metric. All parties must give theirs.",
            show_default=False,
        ),
    ] = None,
    model: PartyModel = None,
    directory: Annotated[
        Path | None,
        typer.Option(help="With --party: its own directory. Default: runs/NAME-PARTY-serve.", show_default=False),
    ] = None,
    show_products: Annotated[
        bool,
        typer.Option(
            "--show-products",
            help="Serve a linear model whose sums were masked in training: the label party then SEES each party's "
            "product of each row. All parties must say it.",
        ),
    ] = False,
) -> None:
    """Answer predictions over HTTP, one or many at a time, from all parties' models and live tables."""
    if add_key:
        _make_key(keys, add_key)
        return
    from colonnade.federation.party_file import read_party_file
    from colonnade.runtimes.interrupt import stop_on_interrupt

    own = None if party is None else read_party_file(party)
    form, name = ("text", "serve") if own is None else (own.party.log, own.party.name)
    set_up_logging(form, name)
    with last_words(form), interrupted("Serving has stopped."), stop_on_interrupt(quiet=True) as stop:
        try:
            from colonnade.launch.serving import Serving, serve_run
            from colonnade.serving.http_server import HttpSettings
            from colonnade.serving.label_party import ServingLimits
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "starlette"):
                raise
            raise SettingsError("Serving needs FastAPI and uvicorn: pip install 'colonnade[serve]'.") from None
        from colonnade.federation.file import read_federation

        certificate, key = tls_certificate, tls_key
        if tls:
            if own is None:
                raise SettingsError(
                    "--tls takes the certificate of --party; without, give --tls-certificate and --tls-key."
                )
            certificate, key = own.path(own.keys.certificate), own.path(own.keys.key)
        if (certificate is None) != (key is None):
            raise SettingsError("HTTPS needs both --tls-certificate and --tls-key.")
        serving = Serving(
            HttpSettings(http, certificate, key),
            keys,
            ServingLimits(most_ids, max(10_000, most_ids), party_seconds, cache_seconds),
            seconds,
            shadow,
            show_products,
            stop_requested=stop,
        )
        if own is None:
            _check_keys(serving, no_keys)
            serve_run(run, serving)
            return
        federation = read_federation(run)
        if own.party.name == federation.label_party:
            _check_keys(serving, no_keys)
        from colonnade.launch.serving_network import serve_party

        serve_party(federation, own, serving, model=model, out=directory)


def _check_keys(serving: "Serving", no_keys: bool) -> None:
    if (serving.keys is None) != no_keys:
        raise SettingsError(
            "Say who may ask: --keys FILE (colonnade serve RUN --keys FILE --add-key NAME makes one), or --no-keys for "
            "everybody who reaches the address."
        )


def _make_key(path: Path | None, name: str) -> None:
    from colonnade.serving.keys import add_key

    if path is None:
        raise SettingsError("--add-key needs --keys, the file that the key's hash is added to.")
    key = add_key(path, name)
    console.print(key, markup=False, highlight=False, soft_wrap=True)
    tell(f"This is the key of {name}, which nobody can show again. Its hash is in {path}.")
