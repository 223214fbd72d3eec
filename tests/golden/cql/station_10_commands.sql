-- Commands that no station acknowledged within 15 minutes.
Register Stream commands (station text, command text);
Register Stream acks (station text, command text);

Select Istream(c.station, c.command) From Dstream(Select station, command From commands [Range 15 Minutes]) [Now] c
Where (c.station, c.command) Not In (Select station, command From acks [Range 1 Hour])
