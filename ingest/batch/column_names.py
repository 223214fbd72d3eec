"""Inference of a column's variable, unit, statistic and height from its name, in several languages."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hypergrid.core.readings import Statistic
from hypergrid.core.units import Variable
from ingest.formats.file_metadata import COMMON, fold_accents, is_convertible, statistic_of, unit_of, variable_name

OTHERS: Final = {
    variable.name: variable
    for variable in (
        Variable("battery_voltage", "V", None, "Battery voltage"),
        Variable(
            "diffuse_radiation", "W m-2", "surface_diffuse_downwelling_shortwave_flux_in_air", "Diffuse radiation"
        ),
        Variable("emitted_longwave_radiation", "W m-2", "surface_upwelling_longwave_flux_in_air", "Emitted longwave"),
        Variable("net_radiation", "W m-2", "surface_net_downward_radiative_flux", "Net radiation"),
        Variable("photon_flux", "umol m-2 s-1", None, "Photosynthetic photon flux"),
        Variable("illuminance", "lx", None, "Illuminance"),
        Variable("sunshine_duration", "s", "duration_of_sunshine", "Sunshine duration"),
        Variable("vapour_pressure", "kPa", "water_vapor_partial_pressure_in_air", "Vapour pressure"),
        Variable("water_level", "m", "water_surface_height_above_reference_datum", "Water level"),
        Variable("discharge", "m3 s-1", "water_volume_transport_in_river_channel", "Discharge"),
        Variable("water_temperature", "degC", "water_temperature", "Water temperature"),
        Variable("electrical_conductivity", "uS cm-1", None, "Electrical conductivity"),
        Variable("ph", "1", None, "pH"),
        Variable("carbon_dioxide", "ppm", "mole_fraction_of_carbon_dioxide_in_air", "Carbon dioxide"),
        Variable("particles_2_5", "ug m-3", "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air", "PM2.5"),
        Variable("particles_10", "ug m-3", "mass_concentration_of_pm10_ambient_aerosol_particles_in_air", "PM10"),
        Variable("ozone", "ug m-3", "mass_concentration_of_ozone_in_air", "Ozone"),
    )
}
"""Variables beyond `COMMON` that are recognised by name; a deployment has to declare them."""
VARIABLES_BY_NAME: Final[Mapping[str, Variable]] = {**OTHERS, **COMMON}

_ALIASES: Final[Mapping[str, str]] = {
    "air_temperature": "ta t temp temperature airtemp airtemperature tair airt tempair temperatureair tempout "
    "outtemp tmp t2m tt tl lufttemperatur temperatur tas temperaturaire temperatura tc ambienttemp ambienttemperature "
    "drybulb drybulbtemperature ttten dbt "
    "temperaturearia temperaturaaria temperaturaaire temperatureair tempaire temparia airtemp tmed t2",
    "surface_temperature": "ts tss surfacetemp surfacetemperature skintemperature tsurf surftemp targettemp "
    "sbt ts0 snowsurfacetemperature oberflachentemperatur irt tcanopy "
    "temperaturesurface temperaturasuperficie temperaturasuperficiale temperatursurface",
    "solar_radiation": "iswr sw swin swdown swd ghi globalradiation globalrad glorad solarradiation solarrad solar "
    "srad rsds rg radiation shortwave shortwavein slr slrkw globalstrahlung strahlung rad pyr pyranometer "
    "incomingshortwave insolation irradiance swr kdown qg "
    "rayonnement rayonnementglobal rayonnementsolaire radiacion radiacionsolar radiacionglobal radiazione "
    "radiazionesolare radiazioneglobale globalstr",
    "reflected_radiation": "rswr swout swup reflectedradiation reflectedshortwave shortwaveout outgoingshortwave kup",
    "longwave_radiation": "ilwr lw lwin lwdown lwd longwave longwavein incominglongwave ldown rlds",
    "emitted_longwave_radiation": "olwr lwout lwup longwaveout outgoinglongwave lup",
    "net_radiation": "netrad rnet rn netradiation nr qn",
    "diffuse_radiation": "dhi diffuseradiation diffuse diffuserad",
    "photon_flux": "par ppfd photosyntheticradiation quantum",
    "relative_humidity": "rh relativehumidity humidity relhum hum humidite hurs luftfeuchte luftfeuchtigkeit feuchte "
    "relativefeuchte relf humrel hr outhumidity hygro humedad rfm "
    "humiditerelative humedadrelativa umidita umiditarelativa hrel ur luftfeuchtigkeitrelativ",
    "dew_point_temperature": "td dewpoint dewpointtemperature dewpt dp taupunkt tdew tau "
    "taupunkttemperatur pointrosee puntorocio puntorugiada",
    "air_pressure": "pa p pressure airpressure stationpressure baro barometer barometricpressure bp pres press patm "
    "atmosphericpressure luftdruck slp pression qfe pp "
    "pressionatmospherique presion presionatmosferica pressione pressioneatmosferica pressionair",
    "vapour_pressure": "vp vapourpressure vaporpressure ea vappres",
    "precipitation": "psum precip precipitation rain rainfall prcp pr rr niederschlag regen raintot pluie ppt "
    "rainamount precipitationamount n1 lluvia precipitacion "
    "precipitations precipitazione precipitazioni pioggia regenmenge niederschlagsmenge pluviometrie pluviometria "
    "precipitaciones",
    "rain_meter": "rainmeter raincounter rainaccumulated accumulatedrain",
    "wind_speed": "vw ws windspeed windspd wspd ff wind windgeschwindigkeit windvel windvelocity vent wv sknt "
    "windspeedms u10 windms vv "
    "vitessevent velocidadviento velocitavento viento vento vitesse",
    "wind_gust": "vwmax gust windgust wsmax gustspeed fx boe windboe maxwind gusts windspeedmax peakwind "
    "rafale rafalevent racha rachaviento raffica rafficavento windspitze",
    "wind_direction": "dw wd winddirection winddir wdir dd windrichtung windrose wnddir drct wdd dirvent winddirdeg "
    "directionvent direccionviento direzionevento direccion direzione",
    "snow_height": "hs snowheight snowdepth snow schneehohe sd snd sfcsnow hsnow snowheightm hneige sdepth "
    "hauteurneige alturanieve altezzaneve neige nieve neve schnee",
    "soil_temperature": "tsoil soiltemp soiltemperature tg bodentemperatur ground tgnd tsg stemp soilt tb "
    "temperaturesol temperaturasuelo temperaturasuolo",
    "soil_moisture": "vwc sm soilmoisture soilwatercontent swc moisture volumetricwatercontent bodenfeuchte theta wc "
    "soilvwc soilwater "
    "humiditesol humedadsuelo umiditasuolo",
    "watermark": "watermark soilwatertension tension matricpotential swp soilwaterpotential",
    "battery_voltage": "batt batterie battery battv batteryvoltage vbat bat batvolt voltage volt ubat supplyvoltage "
    "internalvoltage battvolt",
    "illuminance": "lux illuminance light illumination",
    "sunshine_duration": "sunshine sunshineduration sunduration sonnenscheindauer ss sun",
    "water_level": "waterlevel waterlvl stage level pegel wasserstand wl gaugeheight niveaueau nivelagua livelloacqua",
    "discharge": "discharge flow q abfluss streamflow debit runoff",
    "water_temperature": "watertemp watert watertemperature wtemp twater wassertemperatur wt "
    "temperatureeau temperaturaagua temperaturaacqua",
    "electrical_conductivity": "ec conductivity leitfahigkeit cond specificconductance",
    "ph": "ph",
    "carbon_dioxide": "co2 carbondioxide",
    "particles_2_5": "pm25 pm2p5",
    "particles_10": "pm10",
    "ozone": "o3 ozone",
}
_BY_NAME: Final = {
    alias: name for name, aliases in _ALIASES.items() for alias in (name.replace("_", ""), *aliases.split())
}
_SUFFIXES: Final = {
    alias: unit
    for unit, aliases in {
        "degC": "c degc celsius",
        "degF": "f degf",
        "K": "k kelvin",
        "m s-1": "ms mps",
        "km h-1": "kmh kph",
        "mile hour-1": "mph",
        "knot": "kt kts knots",
        "mm": "mm",
        "cm": "cm",
        "m": "m",
        "inch": "in",
        "hPa": "hpa mbar mb",
        "kPa": "kpa",
        "Pa": "pa",
        "%": "pct percent",
        "W m-2": "wm2 w",
        "degree": "deg degrees",
        "V": "v",
        "mV": "mv",
        "ppm": "ppm",
    }.items()
    for alias in aliases.split()
}
_BRACKET: Final = re.compile(r"[\[(<{]\s*([^\[\](){}<>]+?)\s*[\])>}]")
_HEIGHT: Final = re.compile(r"^(-?\d+(?:\.\d+)?)(m|cm)$")
_TOKENS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+(?:\.\d+)?(?:cm|m)?(?![A-Za-z])|\d+")
_DEEP: Final = ("soil_temperature", "soil_moisture", "watermark")
_FILLERS: Final = frozenset("d de del dell della dello di du des da l la le les el il lo der die das of the".split())
"""Words that a name has between those that mean something."""
_ABOUT: Final = frozenset(
    "count counts cnt n num number samples std stdev sd stddev deviation sigma variance qc qf flag flags quality error "
    "err uncertainty status valid missing id anzahl nombre numero chill deficit tendency difference diff gradient "
    "index "
    "trend code type voltage current".split()
)
"""Words for numbers about measurements, or made of them, which are other quantities."""
_ELSEWHERE: Final = frozenset(
    "battery batt logger panel board box cpu case chip device internal inner indoor inside enclosure housing wet bulb "
    "sensor body leaf".split()
)
"""Words that name another place of a quantity than that of the variable."""


@dataclass(frozen=True)
class ColumnGuess:
    """Inferred attributes of a column; None if its name does not reveal them."""

    variable: Variable
    unit: str | None
    statistic: Statistic | None
    height_m: float | None
    replicate: int
    why: str


def guess_column(name: str, unit: str | None = None) -> ColumnGuess:
    """Infer the attributes of a column from its name and, if given, its unit.

    A common variable is only inferred if the unit, if any, is convertible; otherwise the column becomes a new variable.

    Examples
    --------
    >>> guess = guess_column("AirTC_Avg")
    >>> guess.variable.name, guess.unit, guess.statistic
    ('air_temperature', 'degC', 'mean')
    >>> guess_column("Wind Speed (km/h)").unit
    'km h-1'
    """
    reasons: list[str] = []
    plain = fold_accents(name)
    bracket = _BRACKET.search(plain)
    parsed_unit = unit_of(unit)
    # A number in brackets counts sensors.
    in_brackets = None if bracket is None or bracket[1].isdigit() else unit_of(bracket[1])
    if parsed_unit is None and bracket is not None and (parsed_unit := in_brackets) is not None:
        reasons.append(f"unit {parsed_unit} from {bracket[0]!r}")
    head, _, tail = plain.rpartition(" ")
    if (
        parsed_unit is None
        and head
        and any(sign in tail for sign in "/%°-")
        and (parsed_unit := unit_of(tail)) is not None
    ):
        reasons.append(f"unit {parsed_unit} from {tail!r}")
        plain = head
    tokens = [
        token.lower().replace(".", "") if "." in token and "m" not in token else token.lower()
        for token in _TOKENS.findall(_BRACKET.sub(" ", plain))
    ]
    tokens = [token for token in tokens if token not in _FILLERS] or tokens
    statistic = next((candidate for token in tokens if (candidate := statistic_of(token)) is not None), None)
    if statistic is not None and len(tokens) > 1:
        reasons.append(f"{statistic} from its name")
        tokens = [token for token in tokens if statistic_of(token) is None]
    else:
        statistic = None
    height, tokens = _height(tokens, reasons)
    numbered = len(tokens) > 1 and tokens[-1].isdigit() and "".join(tokens) not in _BY_NAME
    replicate = int(tokens.pop()) if numbered and 1 <= int(tokens[-1]) <= 99 else 1
    alias, rest = _find_known_variable(tokens)
    if parsed_unit is None and len(rest) == 1 and rest[0] in _SUFFIXES:
        parsed_unit = _SUFFIXES[rest[0]]
        reasons.append(f"unit {parsed_unit} from {rest[0]!r} in its name")
        rest = []
    known = VARIABLES_BY_NAME.get(_BY_NAME.get(alias, ""))
    about = _find_other_meaning(tokens, alias, rest, known) if known is not None else ""
    # With further words in the name, short aliases such as "t" are too ambiguous.
    if known is not None and not about and (not rest or len(alias) > 3) and _is_plausible(parsed_unit, known):
        # Sensors in the soil: a length in the name is a depth, which is a negative height.
        if known.name in _DEEP and height is not None:
            height = -abs(height)
        reasons.insert(0, f"{alias!r} is {known.long_name.lower()}")
        return ColumnGuess(known, parsed_unit, statistic, height, replicate, "; ".join(reasons))
    reasons.insert(
        0, "the name is not known" if known is None else f"{alias!r} would be {known.long_name.lower()}, but"
    )
    if about:
        reasons[0] += f" {about!r} says that it is something else"
    elif known is not None:
        reasons[0] += (
            f" not in {parsed_unit}" if parsed_unit and not _is_plausible(parsed_unit, known) else " the name says more"
        )
    own = variable_name(name)
    # A common name would claim a meaning that the numbers may not have.
    own = f"{own}_raw" if own in VARIABLES_BY_NAME else own
    return ColumnGuess(
        Variable(own, parsed_unit or "unknown", None, name), parsed_unit, statistic, height, 1, "; ".join(reasons)
    )


def _find_other_meaning(tokens: list[str], alias: str, rest: list[str], known: Variable) -> str:
    """Return the word that makes a name with a known alias that of another quantity; empty if there is none."""
    if alias == "".join(tokens):
        return ""
    others = [token for token in rest if len(token) > 2 and _BY_NAME.get(token, known.name) != known.name]
    return next((token for token in tokens if token in _ABOUT or token in others), "")


def _height(tokens: list[str], reasons: list[str]) -> tuple[float | None, list[str]]:
    for token in tokens:
        if (match := _HEIGHT.match(token)) and len(tokens) > 1:
            height = float(match[1]) / (100.0 if match[2] == "cm" else 1.0)
            reasons.append(f"{height:g} m from its name")
            return height, [other for other in tokens if other is not token]
    return None, tokens


def _find_known_variable(tokens: list[str]) -> tuple[str, list[str]]:
    """Return the longest prefix that is a known name, else all words joined, and the rest."""
    for count in range(len(tokens), 0, -1):
        joined = "".join(tokens[:count])
        if joined in _BY_NAME:
            return joined, tokens[count:]
        # "airtc" is air temperature in degC.
        if joined[:-1] in _BY_NAME and joined[-1] in _SUFFIXES and count == len(tokens) and len(joined) >= 4:
            return joined[:-1], [joined[-1]]
    for start in range(1, len(tokens)):
        joined = "".join(tokens[start:])
        if joined in _BY_NAME and len(joined) > 3 and _ELSEWHERE.isdisjoint(tokens[:start]):
            return joined, []
    return "".join(tokens), []


def _is_plausible(unit: str | None, variable: Variable) -> bool:
    return unit is None or variable.unit in (unit, "1", "unknown") or is_convertible(unit, variable.unit)
