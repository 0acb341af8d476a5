// Loads every dependency and prints one line that depends on all of them.
const _ = require('lodash');
const { map, of } = require('rxjs');
const parts = [
  require('chalk').level !== undefined,
  new (require('commander').Command)('demo').name(),
  typeof require('express')(),
  _.sum(_.range(10)),
  require('marked').parse('*text*').trim(),
  require('moment')(0).utc().format('YYYY'),
  require('semver').inc('1.2.3', 'minor'),
  require('uuid').validate('9c5b94b1-35ad-49bb-b118-8e8fc24abf80'),
  typeof require('yargs'),
];
of(parts.join(' ')).pipe(map((line) => `check: ${line}`)).subscribe((line) => console.log(line));
