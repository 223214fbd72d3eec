-- Readings whose light changed by three since the reading before.
Register Stream Sensors (sensor integer, x number 'm', y number 'm', light number 'lux', temperature number 'degC') Rate 20 Per Second;
Register Stream Events (event integer, kind text, x number 'm', y number 'm');

Select Rstream(n.sensor, n.light)
From Sensors [Now] n,
     (Select sensor, first(light) As previous, last(light) As newest From Sensors [Partition By sensor Rows 2] Group By sensor) p
Where n.sensor = p.sensor And abs(p.newest - p.previous) >= '3 lux'
