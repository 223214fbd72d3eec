-- Mean of 30 seconds over one sample a second.
Register Stream Sensors (sensor integer, x number 'm', y number 'm', light number 'lux', temperature number 'degC') Rate 20 Per Second;
Register Stream Events (event integer, kind text, x number 'm', y number 'm');

Select sensor, avg(light) As mean_light
From (Select Rstream(sensor, last(light) As light) From Sensors [Range 1 Second Slide 1 Second] Group By sensor) [Range 30 Seconds]
Group By sensor
