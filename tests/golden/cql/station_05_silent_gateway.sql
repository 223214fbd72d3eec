-- Stations that fall silent together: the gateway, not the sensors.
Register Stream readings (station text, series integer, variable text, value number, flag integer, slice integer) Rate 20 Per Second;
Register Relation stations (station text, lon number 'degree', lat number 'degree', elevation_m number 'm', catchment text, gateway text);

Select g.gateway, count(distinct d.station) as silent
From Dstream(Select distinct station From readings [Range 30 Minutes]) [Range 10 Minutes] d, stations g
Where d.station = g.station Group By g.gateway Having count(distinct d.station) >= 3
