-- Events of the last minute within ten metres of a sensor that is brighter than 300 lux.
Register Stream Sensors (sensor integer, x number 'm', y number 'm', light number 'lux', temperature number 'degC') Rate 20 Per Second;
Register Stream Events (event integer, kind text, x number 'm', y number 'm');

Select s.sensor, count(distinct e.event) As events
From Sensors [Partition By sensor Rows 1] s, Events [Range 1 Minute] e
Where abs(s.x - e.x) <= 10 And abs(s.y - e.y) <= 10 And s.light > '0.3 klux'
Group By s.sensor
