"""`colonnade card`: what a model is, on one page that parties can sign and anybody can verify."""

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import json_option
from colonnade.cli.output import console
from colonnade.errors import SettingsError


def card(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN|MODEL", help="A run's directory, or a folder with models or one model.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder for card.json and card.md. Default: RUN.", show_default=False),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="Sign it with this party's key.", show_default=False)
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="The certificate of that key.", show_default=False)
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            "--verify",
            metavar="CARD.json",
            help="Check the signatures of this card; with RUN|MODEL also that its weights are those of the card.",
            show_default=False,
        ),
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option(
            "--authority",
            help="The authority's certificate, or its directory. Default when signing: authority.pem beside the "
            "certificate.",
            show_default=False,
        ),
    ] = None,
    revoked: Annotated[
        Path | None,
        typer.Option(
            "--revoked", help="The list of revoked ones. Default: revoked.txt beside the authority.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, json_option("Print {card, signed_by}.")] = False,
) -> None:
    """Write, sign or verify a model's card: data shapes, settings, metrics, privacy, versions, digests of weights."""
    from colonnade.launch.card import PAGE, KeyFiles, verify_card, write_card

    if verify is not None:
        if authority is None:
            raise SettingsError("--verify needs --authority: the certificate of whoever named the parties.")
        if key is not None or certificate is not None or out is not None:
            raise SettingsError("--verify only reads: leave out --key, --certificate and --out.")
        _, signers = verify_card(verify, authority, revoked, model)
        if as_json:
            print(json.dumps({"card": str(verify), "signed_by": [signer.name for signer in signers]}))
            return
        for one in signers:
            print(f"Signed by {one.name} on {one.signed_at}, with the certificate {one.serial}")
        print(
            f"{verify} is as it was signed." + ("" if model is None else f" The weights in {model} are those it names.")
        )
        return
    if model is None:
        raise SettingsError("Name a run's directory or a folder with a model; or a card with --verify.")
    if (key is None) != (certificate is None):
        raise SettingsError("To sign a card give both --key and --certificate.")
    keys = None if key is None or certificate is None else KeyFiles(key, certificate, authority, revoked)
    written = write_card(model, out, keys)
    signed = [one["name"] for one in json.loads(written.read_bytes())["signatures"]]
    if as_json:
        print(json.dumps({"card": str(written), "signed_by": signed}))
        return
    console.print(f"Card: {written}, {written.with_name(PAGE)}", markup=False, soft_wrap=True)
    print(f"Signed by {', '.join(signed)}" if signed else "Not signed: give --key and --certificate.")
