"""`colonnade certs`: a certificate authority, and the keys and certificates of parties."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import json_option
from colonnade.cli.verbs import Verb, Verbs

app = typer.Typer(cls=Verbs, help="A certificate authority, and the certificates of parties.", no_args_is_help=True)

AuthorityOption = Annotated[
    Path, typer.Option("--authority", help="The authority's directory, made by `certs init`.", show_default=False)
]
JsonOption = Annotated[bool, json_option("Print the result as JSON, and nothing else.")]


@app.command("init", cls=Verb)
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the authority will be.", show_default=False)],
    name: Annotated[str, typer.Option(help="Whose authority it is, for people.")] = "colonnade",
    days: Annotated[int, typer.Option(help="How long it will be valid.")] = 3650,
) -> None:
    """Make a certificate authority."""
    from colonnade.wire import authority as authorities

    authorities.make_authority(directory, name, days)
    print(f"Authority {name!r}: {directory / authorities.AUTHORITY}")
    print(f"Keep {directory / authorities.AUTHORITY_KEY} to yourself: whoever has it can pass for any party.")


@app.command("issue", cls=Verb)
def issue(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The party's name.", show_default=False)],
    authority: AuthorityOption,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the files go. Default: a folder of the party's name.", show_default=False),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="A DNS name or address of the party's machine. May be repeated.", show_default=False
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="How long it will be valid.")] = 365,
    as_json: JsonOption = False,
) -> None:
    """Give a party a key and a certificate, or new ones."""
    from colonnade.names import check_party_name
    from colonnade.wire import authority as authorities

    check_party_name(name)
    made = authorities.issue(authority, name, Path(name) if out is None else out, host or [], days)
    if as_json:
        files = {part: str(getattr(made, part)) for part in ("key", "certificate", "authority")}
        print(json.dumps({"name": name, "serial": f"{made.serial:040x}", "expires": made.expires.isoformat(), **files}))
        return
    print(f"{made.key}: the key; only {name} may have it")
    print(
        f"{made.certificate}: the certificate, valid until {made.expires:%Y-%m-%d %H:%M} UTC, serial {made.serial:040x}"
    )
    print(f"{made.authority}: the authority's certificate; {authorities.REVOKED} beside it: what it has revoked")


@app.command("revoke", cls=Verb)
def revoke(
    what: Annotated[
        str,
        typer.Argument(metavar="NAME|SERIAL", help="A party, or one of its certificates.", show_default=False),
    ],
    authority: AuthorityOption,
    as_json: JsonOption = False,
) -> None:
    """Put a party's certificates on the list of revoked ones."""
    from colonnade.wire import authority as authorities

    revoked = authorities.revoke(authority, what)
    listed = authority / authorities.REVOKED
    if as_json:
        print(json.dumps({"revoked": [f"{serial:040x}" for serial in revoked], "list": str(listed)}))
        return
    for serial in revoked:
        print(f"Revoked: {serial:040x}")
    if revoked:
        print(f"Give {listed} to every party; it counts from the next connection on.")
    else:
        print(f"Nothing to do: every certificate of {what} has expired or is on the list.")


@app.command("show", cls=Verb)
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pem file.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Show whose certificate a file holds, its serial and how long it is valid."""
    from colonnade.wire import certificates

    now = datetime.now(UTC)
    described = []
    for facts in certificates.read_facts(file):
        dates = {"valid_from": facts.valid_from.isoformat(), "expires": facts.expires.isoformat()}
        described.append({**facts._asdict(), **dates, "days_left": (facts.expires - now).days})
        if as_json:
            continue
        left = (facts.expires - now).days
        print(f"name       {_plain(facts.name)}{' (an authority)' if facts.is_authority else ''}")
        print(f"serial     {facts.serial}")
        print(f"issued by  {_plain(facts.issuer)}")
        print(f"valid      {facts.valid_from:%Y-%m-%d %H:%M} to {facts.expires:%Y-%m-%d %H:%M} UTC")
        print(f"days left  {left if facts.expires > now else 'none: it has expired'}")
        if facts.hosts:
            print(f"hosts      {', '.join(map(_plain, facts.hosts))}")
    if as_json:
        print(json.dumps(described))


def _plain(text: str) -> str:
    """A name from a certificate that anybody may have made, fit for a terminal."""
    return text if text.isprintable() else repr(text)
