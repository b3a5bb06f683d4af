package credential

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"regexp"

	"cloud.google.com/go/compute/metadata"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"
	"golang.org/x/oauth2"
)

// said is an error whose text is ours.
type said struct{ error }

// reason says why a credential could not be had, on one line. It repeats only what is known to hold no secret: an
// SDK's own text may quote the answer of a token server, or all that a credential process printed.
func reason(err error) string {
	for _, tell := range []func(error) string{reasonOurs, reasonAWS, reasonGoogle, reasonEntra, reasonNetwork} {
		if text := tell(err); text != "" {
			return text
		}
	}
	return "what the environment and the files of this process hold is absent or makes no credential"
}

func reasonOurs(err error) string {
	var ours said
	var path *fs.PathError
	switch {
	case errors.As(err, &ours):
		return ours.Error()
	case errors.As(err, &path):
		return path.Error()
	}
	return ""
}

func reasonNetwork(err error) string {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var call *url.Error
	switch {
	case errors.As(err, &op):
		return op.Error()
	case errors.As(err, &cert):
		return "the certificate of the token server is not trusted"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &call):
		return "the call to the token server failed"
	}
	return ""
}

func reasonAWS(err error) string {
	var profile awsconfig.SharedConfigProfileNotExistError
	var call *smithy.OperationError
	var api smithy.APIError
	switch {
	case errors.As(err, &profile):
		return fmt.Sprintf("there is no profile %.80q", profile.Profile)
	case !errors.As(err, &call):
		return ""
	case errors.As(err, &api):
		return fmt.Sprintf("%s %s: %s", call.ServiceID, call.OperationName, cmp.Or(word(api.ErrorCode()), "refused"))
	}
	text := fmt.Sprintf("%s %s: %s", call.ServiceID, call.OperationName, cmp.Or(reasonNetwork(err), "failed"))
	if call.ServiceID == "ec2imds" { // the end of the default chain
		return "none in the environment or the files, and " + text
	}
	return text
}

func reasonGoogle(err error) string {
	var token *oauth2.RetrieveError
	var server *metadata.Error
	var undefined metadata.NotDefinedError
	switch {
	case errors.As(err, &token):
		return answered("the token server", token.Response, cmp.Or(token.ErrorCode, bodyCode(token.Body)))
	case errors.As(err, &server):
		return fmt.Sprintf("the metadata server answered %d", server.Code)
	case errors.As(err, &undefined):
		return "the metadata server knows no default service account"
	}
	return ""
}

// bodyCode is the error code of RFC 6749, 5.2, which the library leaves in the body for a service account.
func bodyCode(body []byte) string {
	var e struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(body, &e) // no code then
	return e.Error
}

// entraCode is the number by which Microsoft documents an error.
var entraCode = regexp.MustCompile(`AADSTS[0-9]{1,9}`)

func reasonEntra(err error) string {
	var failed *azidentity.AuthenticationFailedError
	if !errors.As(err, &failed) {
		return ""
	}
	return answered("Entra", failed.RawResponse, entraCode.FindString(failed.Error()))
}

func answered(who string, r *http.Response, code string) string {
	text := who + " refused"
	if r != nil {
		text = fmt.Sprintf("%s answered %d", who, r.StatusCode)
	}
	if code = word(code); code != "" {
		text += ": " + code
	}
	return text
}

// plain is how error codes look. A secret may too, but not one this short.
var plain = regexp.MustCompile(`^[A-Za-z_.]+$|^AADSTS[0-9]+$`)

func word(code string) string {
	if len(code) <= 48 && plain.MatchString(code) {
		return code
	}
	return ""
}
