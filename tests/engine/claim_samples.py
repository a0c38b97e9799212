"""Handovers of ten invented conversations, honest and with one false sentence each.
They were written before the search for claims was.

In each sample `honest` are sentences that a free writer would say of the conversation,
`false` those that nothing in it supports, by what they invent: a file, a name, a
number, a quotation, or an order of the user's, said to be the user's or merely stated.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

HEADINGS = ("Project Background", "Technical Details", "Completed Work", "Current Issues", "TODO Items", "User Preferences")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """`said`: the user's messages. `seen`: calls, outputs and replies."""

    said: Sequence[str]
    seen: Sequence[str]
    honest: Sequence[str]
    false: Mapping[str, Sequence[str]]


SAMPLES = (
    Sample(
        (
            "The login page throws a 500 when the e-mail has a plus sign in it, like anna+test@example.org. Please find out why and fix it.",
            "Yes, fix it in the validator, but don't change the database schema. And add a test.",
            "Good. Can you also look at why the test run takes so long? It was 40 seconds last week. Keep the commits small please.",
        ),
        (
            "read src/accounts/validators.py", "import re\nEMAIL = re.compile(r'^[\\w.]+@[\\w.]+$')\n\ndef validate_email(value: str) -> str:\n    if not EMAIL.match(value):\n        raise ValueError(value)\n    return value.lower()\n",
            "pytest tests/accounts -q", "...........F.\nFAILED tests/accounts/test_login.py::test_plus_address - ValueError: anna+test@example.org\n1 failed, 12 passed in 38.41s",
            "edit src/accounts/validators.py", "EMAIL = re.compile(r'^[\\w.+-]+@[\\w.-]+$')",
            "pytest tests/accounts -q", "13 passed in 37.92s",
            "pytest --durations=3", "31.20s setup    tests/accounts/conftest.py::database\n0.41s call     tests/accounts/test_login.py::test_lockout\n0.12s call     tests/accounts/test_signup.py::test_twice",
            "The fixture `database` in conftest.py creates the schema anew for every test module; a session scope would do it once. I committed the validator fix as 4be91c7.",
        ),
        (
            "The project is a web application with accounts; the bug was a server error on the login page for addresses with a plus sign.",
            "The pattern in `src/accounts/validators.py` did not allow `+`, so `validate_email` raised a ValueError.",
            "The regular expression now accepts plus and minus as well.",
            "A test for plus addresses exists and all 13 tests in tests/accounts pass.",
            "Before the change one test of thirteen failed.",
            "The slow part is the `database` fixture in `conftest.py`, with about 31 seconds of setup.",
            "Nearly all of the 38 s go into creating the schema again for every module.",
            "Commit 4be91c7 contains the fix of the validator.",
            "Next: give the fixture session scope and measure again.",
            "The database schema must not be changed.",
            "The user wants small commits.",
            "You asked to find out why the tests take so long; a week ago they took 40 seconds.",
            "It is not yet known whether other forms use the same validator.",
        ),
        {
            "file": (
                "The second half of the fix went into src/accounts/normalise.py.",
                "Remaining work is listed in docs/login-notes.md.",
                "A factory for users was added below tests/factories/user_factory.py.",
                "Settings for the mail check live in config/email.toml.",
            ),
            "name": (
                "The check is called from `clean_registration_form`, which swallows the exception.",
                "Marek Dvořák reviewed the change and was happy with it.",
                "Sessions are kept in Redis between requests.",
                "The class LoginThrottle counts the attempts.",
            ),
            "number": (
                "After the fix the run took 22.7 seconds.",
                "There were 164 failing addresses in the log.",
                "The server answers on port 8443.",
                "Python 3.13 is the version in use.",
            ),
            "quotation": (
                'The person in charge wrote "ship it before Friday whatever happens".',
                "When asked about speed, the reply was “anything under ten seconds is fine by me”.",
            ),
            "said order": (
                "The user asked to move everything to asynchronous handlers.",
                "You told me to open a pull request for each step.",
                "They insisted on British spelling in error messages.",
            ),
            "stated order": (
                "Never push to the main branch without approval.",
                "All new code has to carry type annotations and docstrings.",
                "Leave the signup form alone until marketing has answered.",
            ),
        },
    ),
    Sample(
        (
            "our csv importer (rust, crate tablet-import) eats 9 GB of RAM on a 2 GB file. make it stream. target: below 300 MB",
            "ok but no new dependencies, and the public API has to stay as it is",
            "what about the quoted newlines? they must still work",
        ),
        (
            "rg -n read_to_string crates/tablet-import/src", "crates/tablet-import/src/reader.rs:41:    let text = std::fs::read_to_string(path)?;",
            "cat crates/tablet-import/src/reader.rs", "pub fn import(path: &Path) -> Result<Table, ImportError> {\n    let text = std::fs::read_to_string(path)?;\n    let rows: Vec<Row> = text.split('\\n').map(parse_row).collect::<Result<_, _>>()?;\n    Table::from_rows(rows)\n}",
            "I replaced read_to_string by a BufReader with a buffer of 64 KiB and made RowSplitter, a small state machine that knows whether it is inside quotes.",
            "cargo test -p tablet-import", "running 27 tests\ntest result: ok. 27 passed; 0 failed; 0 ignored; finished in 1.83s",
            "/usr/bin/time -v target/release/tablet big.csv", "Maximum resident set size (kbytes): 271344\nElapsed (wall clock) time: 0:48.17",
            "cargo clippy", "warning: this function has too many arguments (8/7)\n  --> crates/tablet-import/src/row_splitter.rs:112:1",
        ),
        (
            "tablet-import is a CSV importer written in Rust which held whole files in memory.",
            "`import` in `reader.rs` called read_to_string and collected every row first.",
            "It now reads through a BufReader of 64 KiB, and a new state machine, `RowSplitter`, finds the ends of rows.",
            "Quoted newlines still work: the splitter knows whether it stands inside quotes.",
            "Peak memory is 271 MB (271344 kB), under the target of 300 MB; it was 9 GB.",
            "The run over big.csv took 48 seconds.",
            "All 27 tests are green.",
            "clippy complains about a function with eight arguments in row_splitter.rs, line 112.",
            "No new dependencies may be added.",
            "The public API has to remain unchanged.",
            "To do: get rid of the clippy warning, then measure the time against the old version.",
            "The user was worried about newlines within quotes.",
            "Nothing was committed so far.",
        ),
        {
            "file": (
                "Benchmarks stand in crates/tablet-import/benches/stream.rs.",
                "The state table was moved to src/dfa.rs.",
                "See CHANGELOG-2.md for the release text.",
                "Test data was put into fixtures/quoted.csv.",
            ),
            "name": (
                "Rows are interned by StringArena to save space.",
                "The crate memmap2 maps the file.",
                "`flush_partial` is called at the end of every chunk.",
                "The behaviour follows what Pandas does.",
            ),
            "number": (
                "Throughput rose to 410 MB/s.",
                "Chunks of 512 rows are handed on at a time.",
                "Two of 31 tests are flaky.",
                "The limit was lowered to 150 MB.",
            ),
            "quotation": (
                'The issue says "memory is cheap, correctness is not".',
                "The request was worded “do not bother with Windows line ends”.",
            ),
            "said order": (
                "The user wants a progress bar while importing.",
                "The client demanded parallel parsing on all cores.",
                "It was requested to support gzip input as well.",
            ),
            "stated order": (
                "Unsafe code is forbidden in this crate.",
                "Rows with too few columns should be skipped silently.",
                "Always run the fuzzer before committing.",
            ),
        },
    ),
    Sample(
        (
            "Please migrate the orders table: amount is a float, it must become numeric(12,2). Production has 18 million rows, so no long locks.",
            "We are on PostgreSQL 14. Use the migration tool that's in the repo (alembic).",
            "Do it in three steps as you proposed. Do not run anything against production, only the staging database.",
        ),
        (
            "ls migrations/versions", "0041_add_customer_region.py\n0042_orders_index.py",
            "I propose: add a column amount_exact, fill it in batches of 5000, then swap the names in one short transaction.",
            "write migrations/versions/0043_orders_amount_exact.py", "op.add_column('orders', sa.Column('amount_exact', sa.Numeric(12, 2)))",
            "alembic upgrade head", "INFO  [alembic.runtime.migration] Running upgrade 0042 -> 0043, orders amount exact",
            "python scripts/backfill_amounts.py --batch 5000", "done 1204311 rows in 212 s, 7 rows skipped: amount is NaN",
            'psql staging -c "select count(*) from orders where amount_exact is null"', " count\n-------\n     7\n",
        ),
        (
            "The column orders.amount is to change from float to numeric(12,2) without long locks, on PostgreSQL 14.",
            "Work goes in three steps: a new column amount_exact, filling it in batches of 5,000, then a swap of names.",
            "Step one is migration 0043_orders_amount_exact.py, applied on staging.",
            "`scripts/backfill_amounts.py` filled about 1.2 million rows in 212 seconds.",
            "Seven rows were skipped since their amount is NaN.",
            "Production holds 18 million rows.",
            "Nothing may be run against production; staging only.",
            "Open question: what to do with the 7 rows that have no number.",
            "The last step, swapping the names within one short transaction, is still to be written.",
            "The migration tool is alembic, as the user said.",
            "The backfill on staging took roughly three and a half minutes.",
            "After 0042 came 0043; the next migration will be 0044.",
            "The user agreed to the proposal with three steps.",
        ),
        {
            "file": (
                "The rollback is in migrations/versions/0040_rollback_amount.py.",
                "Batch sizes are read from etc/backfill.yaml.",
                "A dump was written to /backup/orders-before.sql.",
                "ops/runbook.txt describes the swap.",
            ),
            "name": (
                "A trigger called sync_amount_columns keeps both columns equal.",
                "Ingrid Solheim has to approve the swap.",
                "The view revenue_by_month depends on the column.",
                "PgBouncer sits in front of the database.",
            ),
            "number": (
                "The swap blocked writers for 340 ms.",
                "Each batch took 0.8 seconds on average and used 96 MB.",
                "The table takes 62 GB on the disk.",
                "There are 23 indexes to recreate.",
            ),
            "quotation": (
                'The log had "deadlock detected while waiting for ShareLock".',
                "The answer was “round everything down to whole cents”.",
            ),
            "said order": (
                "The user wants the old column kept for ninety days.",
                "You said that customers should be told by e-mail beforehand.",
                "The team lead asked for a dry run on Sunday night.",
            ),
            "stated order": (
                "Backups must be taken before every step.",
                "Triggers are not allowed anywhere in this schema.",
                "Prefer raw SQL over the ORM in scripts.",
            ),
        },
    ),
    Sample(
        (
            "The pods of checkout-api get OOMKilled since Tuesday. Namespace shop-prod, cluster eu-west. Read only, don't restart anything!",
            "Interesting. Show me what changed between v2.14.0 and v2.14.1.",
            "Write me a short summary for the team, in plain words, no tables.",
        ),
        (
            "kubectl -n shop-prod get pods", "checkout-api-7d9f5c-abcde   0/1   OOMKilled   14   2d\ncheckout-api-7d9f5c-fghij   1/1   Running   9   2d",
            "kubectl -n shop-prod describe pod checkout-api-7d9f5c-abcde", "Limits:\n  memory: 512Mi\nLast State: Terminated\n  Reason: OOMKilled\n  Exit Code: 137",
            "git diff v2.14.0 v2.14.1 --stat", "internal/cart/cache.go | 18 +++++-----\n go.mod | 2 +-\n 2 files changed, 11 insertions(+), 9 deletions(-)",
            "git diff v2.14.0 v2.14.1 internal/cart/cache.go", "-\tentries := lru.New(1000)\n+\tentries := map[string]*Cart{}",
            "In v2.14.1 the cart cache became a plain map without a bound. It grows with each customer until the limit of 512Mi is reached.",
        ),
        (
            "checkout-api pods in shop-prod are killed for using too much memory since Tuesday.",
            "Two pods were looked at: one OOMKilled with 14 restarts, the other running after 9.",
            "The memory limit is 512Mi; the exit code was 137.",
            "The cause seems to be `internal/cart/cache.go`: v2.14.1 replaced an LRU of 1000 entries by an unbounded map.",
            "Between v2.14.0 and v2.14.1 only two files changed, cache.go and go.mod.",
            "Eleven lines were added and nine removed.",
            "Only reading is allowed; nothing must be restarted.",
            "A short summary for the team in plain words, without tables, was asked for.",
            "The map holds pointers to Cart and grows with every customer.",
            "A likely remedy is to bring the bounded cache back; that has not been tried.",
            "The user found the result interesting and asked for the difference of the two versions.",
            "What changed in go.mod was not examined.",
        ),
        {
            "file": (
                "The deployment is described in deploy/checkout/values.yaml.",
                "A heap profile was saved as /tmp/heap-0412.pprof.",
                "internal/cart/store_test.go covers the old behaviour.",
                "Alerts are defined in monitoring/rules.yml.",
            ),
            "name": (
                "The function EvictStale was removed by accident.",
                "Grafana shows a steady climb since then.",
                "payment-gateway has the same symptom.",
                "Tomás Herrera merged the release.",
            ),
            "number": (
                "Memory rises by 31 MiB per hour.",
                "The service handles 2,700 requests per second.",
                "Limits were 768Mi before.",
                "A pod lives for 55 minutes on average.",
            ),
            "quotation": (
                'The kernel said "memory cgroup out of memory: killed process".',
                "The release note reads “simplify cart lookup, no functional change”.",
            ),
            "said order": (
                "The user wants a rollback to the previous version tonight.",
                "You asked me to double the quota for the time being.",
                "Management requested a post-mortem document.",
            ),
            "stated order": (
                "Incidents have to be reported to the security officer first.",
                "Do not mention customers in any channel.",
                "Scaling to five replicas is the agreed workaround.",
            ),
        },
    ),
    Sample(
        (
            "In notebook churn.ipynb I get an AUC of 0.97 which can't be right. I suspect leakage. Please check, but leave the notebook as it is, make a script instead.",
            "Aha! Drop that column then. Also use a time split, train on 2022, test on 2023.",
            "Great. Plot the calibration and write the numbers to a file, seed 7.",
        ),
        (
            "jupyter nbconvert --to script churn.ipynb", "[NbConvertApp] Writing 4120 bytes to churn.py",
            "python -c 'import pandas as pd; ...'", "columns: customer_id, tenure, plan, monthly_fee, closed_tickets, cancel_reason\nrows: 48210\nchurned: 6123",
            "cancel_reason is filled only for customers who have left, so it gives the label away.",
            "python train.py --drop cancel_reason --split time --seed 7", "train rows 30100, test rows 18110\nAUC 0.781\nBrier 0.094",
            "python train.py --plot calibration.png --out metrics.json", "wrote calibration.png, metrics.json",
        ),
        (
            "The model of customer churn showed an AUC of 0.97 because of leakage.",
            "The column `cancel_reason` is only filled for customers who left and gives the label away.",
            "Without it and with a split by time the AUC is 0.781 and the Brier score 0.094.",
            "Training uses 2022 with 30,100 rows, testing 2023 with 18,110 rows.",
            "About 13 % of the 48,210 customers churned.",
            "The notebook churn.ipynb must stay as it is; the work is done in a script.",
            "train.py takes --drop, --split, --seed, --plot and --out.",
            "calibration.png and metrics.json were written, with seed 7.",
            "The user suspected leakage and was right.",
            "Still open: whether closed_tickets leaks as well.",
            "Two steps are left: look at the calibration plot, and explain the drop from 0.97.",
            "AUC fell by 0.19.",
        ),
        {
            "file": (
                "Features are built in features/build.py.",
                "The trained model was stored as model_v3.pkl.",
                "Raw data came from data/customers_2021.parquet.",
                "reports/leakage.html has the details.",
            ),
            "name": (
                "The classifier is XGBoost with default settings.",
                "signup_channel turned out to be the strongest feature.",
                "`make_time_folds` builds the folds.",
                "Results were logged to MLflow.",
            ),
            "number": (
                "Recall at the chosen threshold is 0.64.",
                "Training needs 19 minutes.",
                "There are 312 duplicates in the data.",
                "The model has 87 features.",
            ),
            "quotation": (
                'The comment in the data says "filled in by support after closing".',
                "The wish was “never trust a score above point nine”.",
            ),
            "said order": (
                "The user prefers R for the plots.",
                "You want the results presented to the board in slides.",
                "He asked for cross-validation with ten folds.",
            ),
            "stated order": (
                "Personal identifiers must be hashed before anything is saved.",
                "Use logarithms of all prices.",
                "Gradient boosting is ruled out as too opaque.",
            ),
        },
    ),
    Sample(
        (
            "Bitte baue die Druckansicht der Rechnung um: die Fußzeile rutscht auf die zweite Seite. Dateien liegen unter web/invoice.",
            "Ja, mit CSS, kein JavaScript. Und bitte auf Deutsch antworten.",
            "Sieht gut aus. In Firefox fehlt noch die Seitenzahl.",
        ),
        (
            "read web/invoice/print.css", ".footer { position: absolute; bottom: 0; }\n@page { margin: 2cm; }",
            "edit web/invoice/print.css", ".footer { position: fixed; bottom: 0; height: 3cm; }\n@page { margin: 2cm 2cm 4cm; }",
            "chromium --headless --print-to-pdf web/invoice/template.html", "117023 bytes written to file output.pdf",
            "pdfinfo output.pdf", "Pages: 1\nPage size: 595 x 842 pts (A4)",
            "Die Fußzeile steht jetzt fest am Seitenende; der Rand unten ist 4 cm groß.",
        ),
        (
            "Es geht um die Druckansicht der Rechnung in web/invoice, deren Fußzeile auf die zweite Seite rutschte.",
            "In print.css ist `.footer` jetzt fixed statt absolute, 3cm hoch.",
            "Der untere Seitenrand beträgt 4 cm, die übrigen 2 cm.",
            "Mit chromium gedruckt hat output.pdf eine Seite im Format A4.",
            "Erlaubt ist nur CSS, kein JavaScript.",
            "Antworten sollen auf Deutsch sein.",
            "Offen: In Firefox fehlt die Seitenzahl.",
            "Der Benutzer fand das Ergebnis gut.",
            "Das PDF ist 117 KB groß.",
            "Als Nächstes die Seitenzahl in Firefox prüfen.",
            "Die Vorlage heißt template.html.",
        ),
        {
            "file": (
                "Die Schriften liegen in web/fonts/invoice.woff2.",
                "Der Kopf steht in header_partial.html.",
                "Ein Test wurde als tests/print_spec.js angelegt.",
                "Die Farben kommen aus web/theme/colors.scss.",
            ),
            "name": (
                "Die Klasse `.invoice-totals` wurde umbenannt.",
                "Safari zeigt denselben Fehler.",
                "Die Funktion renderFooter setzt die Höhe.",
                "Frau Petersen hat die Vorlage abgenommen.",
            ),
            "number": (
                "Die Schriftgröße ist 9,5 Punkt.",
                "Rechnungen haben bis zu 46 Positionen.",
                "Der Druck dauert 1,8 Sekunden.",
                "Ab 730 Pixel Breite bricht die Tabelle um.",
            ),
            "quotation": (
                "Dazu hieß es „lieber eine Seite zu viel als zu wenig“.",
                'Im Kommentar steht "nur für den Versand mit Fensterumschlag".',
            ),
            "said order": (
                "Der Benutzer möchte das Logo oben rechts.",
                "Du hast verlangt, dass alte Rechnungen neu erzeugt werden.",
                "Gewünscht war außerdem eine englische Fassung.",
            ),
            "stated order": (
                "Farben müssen barrierefrei sein.",
                "Tabellen dürfen nie umbrechen.",
                "Immer zuerst in Edge prüfen.",
            ),
        },
    ),
    Sample(
        (
            "I want my Pico sketch to sleep between measurements, the battery lasts only 3 days. Sensor is a BME280 on I2C.",
            "Measure every 10 minutes. Send over LoRa only if temperature changed by more than half a degree.",
            "It works!! now make the led blink once on start so that I see it lives",
        ),
        (
            "read main.py", "from machine import I2C, Pin, lightsleep\nimport time\ni2c = I2C(0, scl=Pin(5), sda=Pin(4), freq=100000)\nwhile True:\n    publish(read_sensor())\n    time.sleep(5)",
            "edit main.py", "INTERVAL_MS = 10 * 60 * 1000\nTHRESHOLD = 0.5\n...\n    lightsleep(INTERVAL_MS)",
            "mpremote run power_probe.py", "active 24.6 mA, sleep 1.3 mA",
            "With 10 minutes of sleep and 2 seconds awake the mean current is about 1.4 mA; a 2500 mAh battery then lasts about 74 days.",
            "edit main.py", "led = Pin('LED', Pin.OUT)\nled.on(); time.sleep_ms(200); led.off()",
        ),
        (
            "A Pico with a BME280 sensor on I2C measures and sends over LoRa.",
            "main.py now sleeps with lightsleep for ten minutes between measurements instead of 5 seconds.",
            "It only transmits when the temperature moved by more than 0.5 degrees.",
            "The probe shows 24.6 mA awake and 1.3 mA asleep.",
            "The battery should hold for some 74 days at 2500 mAh; it was three days before.",
            "The LED lights up for 200 ms at the start.",
            "SDA is on pin 4 and SCL on pin 5.",
            "The user reports that it works.",
            "Measurements are to be taken every 10 minutes.",
            "The figure for the battery is computed, not observed.",
            "Next one could try whether the radio sleeps too.",
        ),
        {
            "file": (
                "Radio settings are in lib/lora_config.py.",
                "Readings are appended to log/readings.csv.",
                "boot.py disables the USB port.",
                "The wiring is drawn in docs/wiring.svg.",
            ),
            "name": (
                "`wake_on_alarm` handles the interrupt.",
                "The radio is an SX1276 module.",
                "Values go to Home Assistant.",
                "The constant MAX_RETRIES limits sending.",
            ),
            "number": (
                "The radio sends at 868.1 MHz.",
                "A packet is 22 bytes long.",
                "The bus was raised to 400 kHz.",
                "Below 3.3 volts it switches off.",
            ),
            "quotation": (
                'The data sheet says "do not exceed forty milliamperes".',
                "The remark was “I would rather lose a reading than a night's sleep”.",
            ),
            "said order": (
                "The user also wants humidity on a small display.",
                "You asked to encrypt the packets.",
                "The owner requires a watchdog.",
            ),
            "stated order": (
                "Deep sleep is not to be used because of the clock.",
                "Keep variable names in Spanish.",
                "No floating point in the main loop.",
            ),
        },
    ),
    Sample(
        (
            "Review the paper draft in thesis/chapter3.tex. Only language, do not touch the formulas. American English.",
            "I like it. Shorten section 3.2, it is too wordy.",
            "The advisor (Prof. Lindqvist) wants Figure 4 mentioned before it appears.",
        ),
        (
            "read thesis/chapter3.tex", "\\section{Sampling}\nIn order to be able to sample from the posterior we make use of Hamiltonian Monte Carlo.\n\\begin{figure}\\label{fig:trace}\\end{figure}",
            "edit thesis/chapter3.tex", "We sample from the posterior with Hamiltonian Monte Carlo.",
            "latexmk -pdf thesis/main.tex", "Output written on main.pdf (88 pages, 1930211 bytes).\nLaTeX Warning: Reference `fig:acf' on page 41 undefined",
            "texcount thesis/chapter3.tex", "Words in text: 5230\nWords in headers: 61",
            "Section 3.2 went from 890 to 610 words. The reference fig:acf is undefined.",
        ),
        (
            "The task is a language review of chapter3.tex of a thesis; formulas stay untouched.",
            "Spelling follows American English.",
            "Section 3.2 was shortened from 890 words to 610, a cut of nearly a third.",
            "The document builds with latexmk and has 88 pages.",
            "An undefined reference, fig:acf, on page 41 remains.",
            "Professor Lindqvist wants Figure 4 to be mentioned before it appears.",
            "Chapter 3 has 5230 words in its text.",
            "A sentence on Hamiltonian Monte Carlo was made shorter.",
            "The user liked the first edits.",
            "Left to do: mention the figure earlier and repair the reference.",
            "Only the language may be changed.",
        ),
        {
            "file": (
                "Macros were collected in thesis/macros.sty.",
                "The bibliography is refs/library.bib.",
                "figures/trace_plot.pdf has to be redrawn.",
                "A copy is kept as chapter3_old.tex.",
            ),
            "name": (
                "The notation follows Gelman.",
                "The package siunitx was added.",
                "\\posteriormean is defined twice.",
                "Dr. Okafor is the second reader.",
            ),
            "number": (
                "There were 143 corrections.",
                "Equation 3.17 has a wrong sign.",
                "The abstract has 270 words.",
                "Appendix C begins on page 79.",
            ),
            "quotation": (
                'The margin note says "cite the original here".',
                "The comment was “readers will stop at this paragraph”.",
            ),
            "said order": (
                "The user wants passive voice avoided everywhere.",
                "You asked for footnotes to be turned into endnotes.",
                "The supervisor demanded a glossary.",
            ),
            "stated order": (
                "Every acronym must be spelled out at first use.",
                "Citations should be sorted by year.",
                "Contractions are not acceptable.",
            ),
        },
    ),
    Sample(
        (
            "Add offline support to our todo app (React, Vite). Service worker, no workbox please.",
            "If two devices changed the same item the later one wins, that's enough.",
            "Please don't commit, I do that myself. Tests with vitest.",
        ),
        (
            "cat package.json", '{"name": "todo", "dependencies": {"react": "18.2.0", "idb": "8.0.0"}, "devDependencies": {"vite": "5.1.4", "vitest": "1.3.1"}}',
            "write src/sw.ts", "const CACHE = 'todo-v1';\nself.addEventListener('install', ...)",
            "write src/sync/outbox.ts", "export async function drainOutbox(db: IDBPDatabase) { ... }\nexport function mergeItem(a: Item, b: Item) { return a.changedAt > b.changedAt ? a : b; }",
            "npx vitest run", "Test Files  4 passed (4)\nTests  19 passed (19)\nDuration  2.06s",
            "Lighthouse says installable; while offline the list loads in 180 ms.",
        ),
        (
            "The todo app (React with Vite) gets offline support from a service worker written by hand.",
            "Workbox is not wanted.",
            "src/sw.ts caches the shell under todo-v1.",
            "Changes made offline wait in the outbox; `drainOutbox` in src/sync/outbox.ts sends them.",
            "`mergeItem` lets the later change win, which the user said is enough.",
            "vitest: 19 tests in four files, all passing.",
            "Offline the list is there after 180 ms, and Lighthouse calls the app installable.",
            "No commits: the user makes them.",
            "Dependencies of note are react 18.2.0 and idb 8.0.0.",
            "Not done: an update prompt for a new version of the worker.",
            "Tests are to be written with vitest.",
            "When two devices have changed one item, the later one wins.",
        ),
        {
            "file": (
                "Icons were generated into public/icons/maskable.png.",
                "The queue is tested in src/sync/queue.test.ts.",
                "vite.config.mts registers the worker.",
                "Notes for users are in OFFLINE.md.",
            ),
            "name": (
                "useOnlineStatus is the hook that shows the banner.",
                "Dexie wraps the database.",
                "The component `SyncBadge` counts what waits.",
                "Firebase is the server behind it.",
            ),
            "number": (
                "The bundle grew by 14 kB.",
                "Retries happen every 45 seconds.",
                "The cache keeps 60 items at most.",
                "Coverage is 91 %.",
            ),
            "quotation": (
                'The browser printed "quota exceeded for this origin".',
                "The instruction was “make it feel like a native app”.",
            ),
            "said order": (
                "The user wants conflicts shown in a dialog.",
                "You told me to support iOS back to version twelve.",
                "The product owner asked for push notifications.",
            ),
            "stated order": (
                "Secrets must never reach the browser storage.",
                "Prefer classes over hooks.",
                "Animations should be disabled on slow phones.",
            ),
        },
    ),
    Sample(
        (
            "Which of our 6 scrapers still work? Put the answer in a table. Do not hit any site more than once.",
            "bookdepot is closed anyway, delete that one.",
            "For the others: fix the selectors, politely, with a 2 second delay.",
        ),
        (
            "ls scrapers", "alphabooks.py  bookdepot.py  citylib.py  novela.py  paperhouse.py  readmore.py",
            "python check_all.py --once", "alphabooks ok 24 items\nbookdepot 410 Gone\ncitylib ok 50 items\nnovela 0 items (selector .price)\npaperhouse 0 items (selector h2.title)\nreadmore timeout after 30s",
            "git rm scrapers/bookdepot.py", "rm 'scrapers/bookdepot.py'",
            "edit scrapers/novela.py", "-    price = row.select_one('.price')\n+    price = row.select_one('[data-price]')",
            "python check_all.py --only novela", "novela ok 31 items",
        ),
        (
            "Of the six scrapers two worked at first: alphabooks and citylib.",
            "bookdepot answered 410 Gone and was deleted, as the user wished.",
            "novela is repaired: the price now comes from `[data-price]`, and it finds 31 items.",
            "paperhouse still finds nothing; its selector is h2.title.",
            "readmore timed out after 30 seconds.",
            "No site may be hit more than once.",
            "There has to be a delay of two seconds.",
            "The result was to be a table.",
            "alphabooks returned 24 items and citylib 50.",
            "Five scrapers are left, of which three work now.",
            "Next is paperhouse, then readmore.",
            "check_all.py takes --once and --only.",
        ),
        {
            "file": (
                "Proxies are listed in scrapers/proxies.txt.",
                "Output goes to out/books.jsonl.",
                "The shared code is in scrapers/common/http.py.",
                "A cron entry was put in deploy/crontab.",
            ),
            "name": (
                "The library Scrapy does the crawling.",
                "`respect_robots` is switched on.",
                "A scraper for inkwell was begun.",
                "Cloudflare blocks the requests.",
            ),
            "number": (
                "citylib needs 17 pages to be read.",
                "The site returned status 403 twice.",
                "Prices rose by 11 % since the last run.",
                "There are 940 books in all.",
            ),
            "quotation": (
                'The page said "please prove that you are human".',
                "The rule given was “if in doubt, skip the shop”.",
            ),
            "said order": (
                "The user wants the prices converted to euros.",
                "You asked to rotate the user agents.",
                "They would like a weekly mail with the results.",
            ),
            "stated order": (
                "Images must be downloaded as well.",
                "Authors' names are to be written last name first.",
                "Do not store anything older than a month.",
            ),
        },
    ),
)  # fmt: skip


def _handover(chance: random.Random, sentences: Sequence[str]) -> str:
    """The sentences under some of the headings, as items or as running text."""
    headings = sorted(chance.sample(range(6), 3))
    shares = [sentences[at::3] for at in range(3)]
    as_items = chance.random() < 0.5
    paragraphs = [
        "\n".join(f"- {one}" for one in share) if as_items else " ".join(share) for share in shares
    ]
    return "\n\n".join(
        f"## {HEADINGS[at]}\n{text}" for at, text in zip(headings, paragraphs, strict=True)
    )


def honest_handovers(number: int = 300) -> Iterator[tuple[Sample, str]]:
    chance = random.Random(1)
    for at in range(number):
        sample = SAMPLES[at % len(SAMPLES)]
        yield sample, _handover(chance, chance.sample(sample.honest, 8))


def false_handovers() -> Iterator[tuple[Sample, str, str, str]]:
    """With what the false sentence invents, and the sentence."""
    chance = random.Random(2)
    for sample in SAMPLES:
        for kind, sentences in sample.false.items():
            for sentence in sentences:
                honest = chance.sample(sample.honest, 7)
                yield (
                    sample,
                    _handover(chance, chance.sample([*honest, sentence], 8)),
                    kind,
                    sentence,
                )
