-- Three variables of one packet.
Register Stream rain (station text, mm number 'mm', slice integer) Rate 2 Per Second;
Register Stream air_temperature (station text, series integer, height_m number 'm', value number 'degC', flag integer,
  slice integer, time time, arrival time) Rate 2 Per Second;
Register Stream snow_depth (station text, series integer, height_m number 'm', value number 'cm', flag integer,
  slice integer, time time, arrival time) Rate 2 Per Second;

Select Istream(r.station, r.mm, t.value, d.value) From rain [Range 20 Minutes] r, air_temperature [Range 20 Minutes] t, snow_depth [Range 20 Minutes] d
Where r.station = t.station and r.slice = t.slice and t.station = d.station and t.slice = d.slice and r.mm > 0.5 and t.value > 0 and d.value > 20
